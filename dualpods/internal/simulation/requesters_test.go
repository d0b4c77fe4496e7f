package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const otherGate = "example.com/quota"

// putRequester makes one of a GPU, that carries the gate.
func (w *world) putRequester(arg uint64) {
	w.names++
	name := fmt.Sprint("requester-", w.names)
	pod := requester(name, fmt.Sprint("config-", arg%uint64(len(w.sources))))
	switch arg / 7 % 12 {
	case 0:
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: otherGate})
		w.after(w.Between("other gate", time.Second, 30*time.Second), func() {
			change(w.api, pods, name, func(p *corev1.Pod) {
				p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == otherGate })
				w.waits[name] = time.Now()
			})
		})
	case 1:
		pod.Annotations[podmeta.AnnotationInferenceServerConfig] = "none"
		w.waits[name] = time.Now()
	default:
		w.waits[name] = time.Now()
	}
	w.api.put(pod)
	w.after(100*time.Millisecond, func() { w.schedule(name) })
}

func requester(name, config string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{podmeta.AnnotationInferenceServerConfig: config}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: podmeta.SchedulingGate}},
			Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: "requester", Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")},
			}}},
		},
	}
}

func (w *world) modelOf(pod *corev1.Pod) string {
	n, _ := strings.CutPrefix(pod.Annotations[podmeta.AnnotationInferenceServerConfig], "config-")
	for i, s := range w.sources {
		if n == fmt.Sprint(i) {
			return s.uri
		}
	}
	return ""
}

// schedule does what the scheduler and the kubelet do with a Pod: it goes to the node
// that it prefers most, of those that have a GPU to spare.
func (w *world) schedule(name string) {
	pod, there := w.api.objects[pods][name].(*corev1.Pod)
	if !there || pod.DeletionTimestamp != nil || pod.Spec.NodeName != "" {
		return
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		w.after(w.Between("schedules", 100*time.Millisecond, time.Second), func() { w.schedule(name) })
		return
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	best, most := "", int64(-1)
	for _, node := range all[*corev1.Node](w.api, nodes) {
		fits, err := affinity.Match(node)
		if !fits || err != nil || node.Spec.Unschedulable || modelcache.Down(node) || len(w.spare(node.Name)) == 0 {
			continue
		}
		score := int64(w.Draw("score "+node.Name, 60))
		if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			for _, term := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				if slices.Contains(term.Preference.MatchFields[0].Values, node.Name) {
					score += int64(term.Weight)
				}
			}
		}
		if score > most {
			best, most = node.Name, score
		}
	}
	if best == "" {
		if !w.calm {
			w.after(3*time.Second, func() { w.schedule(name) })
		}
		return
	}
	spare := w.spare(best)
	gpu := spare[w.Draw("gpu", uint64(len(spare)))]
	w.note("%s goes to %s, with %s", name, best, gpu)
	w.checkScheduled(pod, best)
	w.given[gpu] = name
	change(w.api, pods, name, func(p *corev1.Pod) { p.Spec.NodeName = best })
	w.after(w.Between("binds", 200*time.Millisecond, 3*time.Second), func() { w.bind(name, best, gpu) })
}

// checkScheduled looks whether a Pod that requires a model goes to a node that has it.
func (w *world) checkScheduled(pod *corev1.Pod, node string) {
	c := w.cacheOfModel(w.modelOf(pod))
	if c == nil || c.Spec.Scheduling != v1alpha1.SchedulingRequire || !w.truth.steady(fact{"scheduling", c.Spec.Source.URI, "", ""}, schedulingOf(c)) {
		return
	}
	if placed, _ := podmeta.ReadPlacement(pod); time.Since(placed.Since) > notices { // it was told before
		return
	}
	if o := w.api.objects[nodes][node]; o.GetLabels()[podmeta.ModelLabel(c.Name)] != podmeta.ModelReady {
		w.violated("elsewhere", "%s on %s, which has not the label of %s", pod.Name, node, c.Name)
	}
}

// spare are the GPUs of a node that no Pod has.
func (w *world) spare(node string) (gpus []string) {
	for _, g := range w.machines[node].gpus {
		if w.given[g] == "" {
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// bind does what the controller of bindings does: it gives a requester the instance of its
// GPU, which is woken where it sleeps, and else made.
func (w *world) bind(name, node, gpu string) {
	pod, there := w.api.objects[pods][name].(*corev1.Pod)
	if !there || pod.DeletionTimestamp != nil || pod.Spec.NodeName != node {
		return
	}
	l := w.server(node, pod)
	config, known := w.api.objects[configs][pod.Annotations[podmeta.AnnotationInferenceServerConfig]].(*v1alpha1.InferenceServerConfig)
	if !known {
		return
	}
	if l == nil || !w.isSelected(node) {
		if !w.calm {
			w.after(2*time.Second, func() { w.bind(name, node, gpu) })
		}
		return
	}
	wanted, id := w.instanceOf(l, pod, config, gpu)
	w.checkBound(pod, l, id, gpu)
	for _, other := range sorted(l.instances) { // one is awake on a GPU
		if i := l.instances[other]; i.GPUUUIDs[0] == gpu && i.State == string(program.Awake) {
			i.State = string(program.Sleeping)
			l.instances[other] = i
		}
	}
	used := time.Now()
	l.instances[id] = launcherapi.Instance{InstanceID: id, State: string(program.Awake), GPUUUIDs: []string{gpu}, LastUsedAt: &used}
	w.lease(l, id, w.modelOf(pod))
	w.cares[string(pod.UID)] = true
	record := podmeta.Binding{
		Instance: id, RequesterUID: pod.UID, Namespace: "ns", Name: name, GPUs: []string{gpu}, ServingPort: 8000, SpecHash: wanted.Hash(), Attempt: 1, Since: time.Now(),
	}
	key, value, err := record.Encode()
	if err != nil {
		panic(err)
	}
	w.note("%s is bound to %s of %s", name, id, l.name)
	change(w.api, pods, l.name, func(p *corev1.Pod) { setAnnotation(p, key, value) })
	l.changed()
}

// instanceOf is the instance of a launcher that a requester gets with a GPU.
func (w *world) instanceOf(l *launcher, requester *corev1.Pod, config *v1alpha1.InferenceServerConfig, gpu string) (wanted form.Form, id string) {
	wanted, _ = form.FromConfig(requester, config)
	wanted, _ = wanted.On(&w.api.objects[pods][l.name].(*corev1.Pod).Spec)
	return wanted, form.InstanceID(wanted, []string{gpu})
}

func setAnnotation(p *corev1.Pod, key, value string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[key] = value
}

// lease has an instance hold the version that it reads, where the store has that whole.
func (w *world) lease(l *launcher, instance, uri string) {
	for _, id := range sorted(l.disk.versions) {
		if v := l.disk.versions[id]; v.uri == uri && v.whole() {
			v.leases[instance] = time.Now()
			v.used = time.Now()
			return
		}
	}
}

// dropRequester deletes one: its instance sleeps, or is ended.
func (w *world) dropRequester(name string, ends bool) {
	pod := w.api.objects[pods][name].(*corev1.Pod)
	w.api.drop(pod)
	delete(w.waits, name)
	for gpu, of := range w.given {
		if of == name {
			delete(w.given, gpu)
		}
	}
	for _, l := range w.launchers() {
		o, there := w.api.objects[pods][l.name].(*corev1.Pod)
		if !there {
			continue
		}
		bindings, _ := podmeta.ReadBindings(o)
		for _, b := range bindings {
			if b.RequesterUID != pod.UID {
				continue
			}
			change(w.api, pods, l.name, func(p *corev1.Pod) { delete(p.Annotations, podmeta.AnnotationBindingPrefix+b.Instance) })
			if i, there := l.instances[b.Instance]; there && !ends {
				i.State = string(program.Sleeping)
				l.instances[b.Instance] = i
			} else {
				w.endInstance(l, b.Instance)
			}
			l.changed()
		}
	}
}

// endInstance ends one, and gives its lease back.
func (w *world) endInstance(l *launcher, id string) {
	delete(l.instances, id)
	for _, v := range l.disk.versions {
		delete(v.leases, id)
	}
	l.changed()
}

// requesters are their names.
func (w *world) requesters() (names []string) {
	for _, pod := range all[*corev1.Pod](w.api, pods) {
		if podmeta.IsRequester(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}
