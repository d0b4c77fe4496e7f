package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// What a world is made of: nodes, three groups of which two may have one folder, and
// four models, of which one takes credentials.
const (
	simNodes  = 4
	manyNodes = 70
	simImage  = "image"
	simToken  = "right"
	simSecret = "token"
	gib       = int64(1) << 30
)

var groupNames = []string{"labelled", "second", "everywhere"}

func (w *world) setUp() {
	count := simNodes
	if w.Chance("many", 1) {
		count, w.many = manyNodes, true
	}
	w.relaunch = w.Between("relaunch", time.Second, 20*time.Second)
	for n, uri := range []string{"hf://org/a", "hf://org/b", "https://host/c", "hf://org/gated"} {
		s := &source{uri: uri, bytes: gib * (1 + int64(w.Draw("size", 4))), slow: w.many || w.Chance("slow source", 15)}
		if n == 3 {
			s.token = simToken
		}
		w.sources = append(w.sources, s)
		config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("config-", n)}}
		// It names no LauncherConfig, so that the launchers of all groups serve it.
		config.Spec.ModelServerConfig.Args = []string{uri}
		config.Spec.ModelServerConfig.Port = 8000
		w.api.put(config)
	}
	w.putSecret(simToken)
	for n, name := range groupNames {
		w.putGroup(uint64(n))
		w.putPool(name)
	}
	for n := range count {
		w.putNode(fmt.Sprint("n", n))
	}
	if w.Chance("strangers", 15) {
		for n := range count {
			w.putStranger(fmt.Sprint("n", n), uint64(n))
		}
	}
}

func (w *world) source(uri string) *source {
	for _, s := range w.sources {
		if s.uri == uri {
			return s
		}
	}
	panic("nobody asks for " + uri)
}

func (w *world) putSecret(token string) {
	w.api.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hotseat", Name: simSecret}, Data: map[string][]byte{"HF_TOKEN": []byte(token)}})
}

// putGroup makes a group, as it is drawn for its world.
func (w *world) putGroup(n uint64) {
	name := groupNames[n%uint64(len(groupNames))]
	g := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Spec.Path, g.Spec.Namespaces = w.pathOf(name), []string{"ns"}
	if name != groupNames[2] {
		g.Spec.NodeSelector = map[string]string{name: "yes"}
	}
	w.limitNodes(g)
	if bytes := w.limitOf(g.Spec.Path); bytes > 0 {
		g.Spec.StorageLimit = resource.NewQuantity(bytes, resource.BinarySI)
	}
	w.api.put(g)
}

// limitNodes draws how many nodes of a group may fetch at the same time.
func (w *world) limitNodes(g *v1alpha1.ModelCacheNodeGroup) {
	g.Spec.MaxConcurrentNodes = nil
	if most := int32(w.Draw("most", 4)); most > 0 && !w.many {
		g.Spec.MaxConcurrentNodes = &most
	}
}

// pathOf is the folder of a group: of half of the worlds two groups have one.
func (w *world) pathOf(group string) string {
	if group == groupNames[0] || group == groupNames[1+w.Seed%2] && w.Seed%4 > 1 {
		return "/models"
	}
	return "/" + group
}

// limitOf is what may be in a folder, which some worlds bound.
func (w *world) limitOf(path string) int64 {
	if (w.Seed/4+uint64(len(path)))%3 != 0 {
		return 0
	}
	return gib * int64(4+(w.Seed/12)%6)
}

// putNode makes a node with its machine and launchers.
func (w *world) putNode(name string) {
	m := w.machines[name]
	if m == nil {
		m = &machine{name: name, disks: map[string]*disk{}}
		for g := range 2 {
			m.gpus = append(m.gpus, fmt.Sprintf("GPU-%s-%d", name, g))
		}
		w.machines[name] = m
	}
	m.up = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{simLabel: "yes"}}}
	for _, g := range groupNames[:2] {
		if w.Chance("labelled", 75) {
			node.Labels[g] = "yes"
		}
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.api.put(node)
	for _, g := range groupNames {
		if w.Chance("launcher of "+g, 60) {
			w.putLauncher(name, g)
		}
	}
}

// disk is the store of a node's folder.
func (w *world) disk(node, path string) *disk {
	m := w.machines[node]
	if m.disks[path] == nil {
		m.disks[path] = &disk{node: node, path: path, versions: map[string]*version{}, limit: w.limitOf(path)}
	}
	return m.disks[path]
}

// putLauncher makes a launcher's Pod, whose program runs in a moment.
func (w *world) putLauncher(node, group string) {
	if w.api.objects[nodes][node] == nil {
		return
	}
	w.names++
	name := fmt.Sprintf("%s-%s-%d", group, node, w.names)
	path := w.pathOf(group)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{
			podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: group, podmeta.LabelModelNodeGroup: group,
		}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.api.objects[pools][group], v1alpha1.GroupVersion.WithKind("LauncherConfig"))}},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: simImage}},
			Volumes: []corev1.Volume{{Name: podmeta.VolumeModels, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	w.api.put(pod)
	w.after(w.Between("starts "+node, 10*time.Millisecond, 3*time.Second), func() {
		if w.api.objects[pods][name] == nil {
			return
		}
		l := &launcher{
			w: w, uid: string(pod.UID), name: name, group: group, disk: w.disk(node, path), plain: w.Chance("plain", 5),
			fetching: map[string]*pull{}, failed: map[string]failure{}, begun: map[*pull]bool{}, instances: map[string]launcherapi.Instance{},
		}
		w.programs[l.uid] = l
		l.begin()
		change(w.api, pods, name, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.1.0.2"
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})
		w.becomesReady(name)
	})
}

// dropLauncher deletes a launcher's Pod; its program ends.
func (w *world) dropLauncher(l *launcher) {
	w.api.remove(pods, l.name)
	l.end()
	w.after(w.Between("goes "+l.disk.node, 10*time.Millisecond, 5*time.Second), func() {
		if o := w.api.objects[pods][l.name]; o != nil {
			w.api.drop(o)
		}
		delete(w.programs, l.uid)
	})
}

// launchers are those that have run, by their UIDs.
func (w *world) launchers() (all []*launcher) {
	for _, uid := range sorted(w.programs) {
		all = append(all, w.programs[uid])
	}
	return all
}

// alive are those whose programs run.
func (w *world) alive() (all []*launcher) {
	for _, l := range w.launchers() {
		if l.up {
			all = append(all, l)
		}
	}
	return all
}

// loseNode takes a node out: its object, its Pods and its machine.
func (w *world) loseNode(name string) {
	for _, l := range w.launchers() {
		if l.disk.node == name {
			l.end()
			delete(w.programs, l.uid)
		}
	}
	for _, pod := range all[*corev1.Pod](w.api, pods) {
		if pod.Spec.NodeName == name {
			w.api.drop(pod)
		}
	}
	if o := w.api.objects[nodes][name]; o != nil {
		w.api.drop(o)
	}
}

// turn has a node's kubelet say that it is ready, or not.
func (w *world) turn(name string, up bool) {
	w.machines[name].up = up
	change(w.api, nodes, name, func(n *corev1.Node) {
		n.Status.Conditions[0].Status = corev1.ConditionFalse
		if up {
			n.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	})
}

var troubles = []string{fetchapi.ReasonUnavailable, fetchapi.ReasonNotFound, fetchapi.ReasonAccessDenied}
