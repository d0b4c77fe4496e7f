package ranks

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const (
	poolName  = "pool" // of the launchers
	nodeLabel = "gpus"
)

var (
	nodeKind    = kindOf(&corev1.Node{})
	servingKind = kindOf(&v1alpha1.ModelServing{})
)

// setUp makes nodes with launchers, and two ModelServings that want their GPUs by turns.
func (w *world) setUp() {
	w.api.put(&v1alpha1.LauncherConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: poolName},
		Spec: v1alpha1.LauncherConfigSpec{
			Population:      v1alpha1.Population{NodeSelector: map[string]string{nodeLabel: "yes"}},
			AllocationCheck: v1alpha1.AllocationCheck{Mode: v1alpha1.AllocationCheckNone},
		},
	})
	gpus := 1 + int(w.Draw("GPUs", 4)/3)
	nodes := 3 + int(w.Draw("nodes", 2))
	if gpus > 1 {
		nodes--
	}
	w.gpus = gpus * nodes
	for n := range nodes {
		name := fmt.Sprintf("node-%d", n)
		w.api.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{nodeLabel: "yes"}}})
		var has []string
		for g := range gpus {
			has = append(has, fmt.Sprintf("GPU-%d-%d", n, g))
		}
		w.addLauncher(name, has)
	}
	w.addServing("first", 1)
	w.addServing("second", 1+int32(w.Draw("workers", 2)))
	w.setPolicy("first", w.Draw("policy", 60))
	w.setPolicy("second", w.Draw("policy", 60))
	w.scale("first", 1)
}

func (w *world) addServing(name string, workers int32) {
	w.api.put(&v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: poolName, ModelServerConfig: v1alpha1.ModelServerConfig{
			Port: 8000, Args: []string{"org/" + name},
		}},
	})
	w.api.put(&v1alpha1.ModelServing{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: v1alpha1.ModelServingSpec{Replicas: new(int32(0)), Template: v1alpha1.ServingGroupTemplate{Roles: []v1alpha1.ServingRole{{
			Name: "server", Replicas: new(int32(1)), WorkerReplicas: &workers, InferenceServerConfig: name,
		}}}},
	})
}

func (w *world) serving(name string) *v1alpha1.ModelServing {
	return w.api.get(servingKind, name).(*v1alpha1.ModelServing)
}

func (w *world) editServing(name string, edit func(*v1alpha1.ModelServing)) {
	serving := w.serving(name).DeepCopy()
	edit(serving)
	serving.Generation++
	w.api.put(serving)
}

func (w *world) scale(name string, replicas int32) {
	w.editServing(name, func(s *v1alpha1.ModelServing) { s.Spec.Replicas = &replicas })
}

// replaceServing deletes a ModelServing, and makes another one of its name. The objects
// that the first one owns are deleted after it.
func (w *world) replaceServing(name string) {
	was := w.serving(name)
	w.api.drop(was)
	next := was.DeepCopy()
	next.UID, next.ResourceVersion, next.Status = "", "", v1alpha1.ModelServingStatus{}
	w.api.put(next)
	for range 10 { // also what is created meanwhile
		w.after(w.Between("garbage collector", time.Millisecond, 20*time.Second), func() { w.collect(was) })
	}
	w.after(25*time.Second, func() { w.collect(was) })
}

// collect deletes what an object owns that is gone.
func (w *world) collect(owner client.Object) {
	for _, kind := range sorted(w.api.objects) {
		for _, name := range sorted(w.api.objects[kind]) {
			if o := w.api.get(kind, name); o != nil && metav1.IsControlledBy(o, owner) {
				w.api.remove(o, 30)
			}
		}
	}
}

// calmDown ends all faults, and has the servers wanted that the GPUs are enough for.
func (w *world) calmDown() {
	w.note("--- nothing happens any more")
	w.calm, w.losesSwaps, w.crashLoop = true, "", 0
	w.proc.killAt, w.failStarts, w.refusals, w.slowOrders = 0, 0, 0, 0
	w.api.down, w.api.flaky = false, 0
	for _, l := range w.launchers {
		l.silent = false
	}
	for _, uid := range sorted(w.programs) {
		w.programs[uid].recover()
	}
	if w.group != nil {
		w.group.calmDown()
		return
	}
	first, second := w.serving("first"), w.serving("second")
	wanted := int(*first.Spec.Replicas)*first.Spec.Template.Roles[0].Size() + int(*second.Spec.Replicas)*second.Spec.Template.Roles[0].Size()
	if wanted > w.gpus {
		w.scale("second", 0)
	}
}

// addLauncher makes a launcher's Pod on a node, as the DaemonSet does.
func (w *world) addLauncher(node string, gpus []string) {
	config := w.api.get(kindOf(&v1alpha1.LauncherConfig{}), poolName)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("launcher-%s-%d", node, w.number()),
			Labels:          map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: poolName},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LauncherConfig", Name: poolName, UID: config.GetUID(), Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm"}}},
	}
	w.api.put(pod)
	w.after(w.Between("launcher runs", 100*time.Millisecond, time.Second), func() {
		pod := w.api.podOf(pod.Name, pod.UID)
		if pod == nil || pod.DeletionTimestamp != nil {
			return
		}
		l := &launcher{w: w, uid: string(pod.UID), pod: pod.Name, node: node, ip: w.address(), gpus: gpus}
		l.begin()
		w.launchers[l.uid] = l
		w.note("launcher %s runs", pod.Name)
		w.api.changePod(pod, func(p *corev1.Pod) { runs(p, l.ip) })
		w.schedule()
	})
}

func runs(p *corev1.Pod, ip string) {
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ip
	var restarts int32
	for _, was := range p.Status.ContainerStatuses {
		restarts = was.RestartCount + 1
	}
	p.Status.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
}

// containerEnded is what the kubelet says of a Pod whose container has ended and starts again.
func containerEnded(p *corev1.Pod) {
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	}
}

// ended is what the kubelet says of a Pod that has ended for good.
func ended(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	containerEnded(p)
	if p.DeletionTimestamp != nil {
		zero := int64(0)
		p.DeletionGracePeriodSeconds = &zero
	}
}

// created is what happens once a controller has created a Pod.
func (w *world) created(*corev1.Pod) {
	w.after(w.Between("scheduler", time.Millisecond, 100*time.Millisecond), w.schedule)
}

// schedule is the scheduler, and the kubelet's allocation of GPUs.
func (w *world) schedule() {
	var waiting []*corev1.Pod
	for _, pod := range w.api.pods() {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			waiting = append(waiting, pod)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for _, pod := range waiting {
		free := w.free()
		if len(free) == 0 {
			return
		}
		to := free[w.Draw("place", uint64(len(free)))]
		if n := slices.Index(free, w.places[pod.Name]); n >= 0 && w.Chance("the same place", 75) { // as Pods go where their models sleep
			to = free[n]
		}
		w.places[pod.Name] = to
		w.place(pod, to.node, to.gpu)
	}
}

type place struct{ node, gpu string }

// free returns the GPUs that no Pod has.
func (w *world) free() (all []place) {
	taken := map[string]bool{}
	for _, p := range w.programs {
		if pod := w.api.podOf(p.pod.Name, p.pod.UID); pod != nil && !podmeta.Finished(pod) {
			taken[p.gpu] = true
		}
	}
	for _, uid := range sorted(w.launchers) {
		l := w.launchers[uid]
		for _, gpu := range l.gpus {
			if !l.dead && !taken[gpu] {
				all = append(all, place{l.node, gpu})
			}
		}
	}
	return all
}

func (w *world) place(pod *corev1.Pod, node, gpu string) {
	p := &requester{w: w, pod: pod, gpu: gpu, ip: w.address()}
	w.programs[pod.UID] = p
	w.note("%s is on %s with %s", pod.Name, node, gpu)
	w.api.changePod(pod, func(p *corev1.Pod) { p.Spec.NodeName = node })
	w.after(w.Between("kubelet", 50*time.Millisecond, 3*time.Second), func() {
		if now := w.api.podOf(pod.Name, pod.UID); now == nil || now.DeletionTimestamp != nil || p.dead {
			p.dead = true
			return
		}
		w.api.changePod(pod, func(o *corev1.Pod) { runs(o, p.ip) })
		w.after(w.Between("program", 0, 60*time.Millisecond), p.begin)
	})
}

// podDeleted is what kubelets do when the deletion of a Pod is asked for.
func (w *world) podDeleted(pod *corev1.Pod) {
	w.note("%s is being deleted", pod.Name)
	if pod.Spec.NodeName == "" {
		return
	}
	if p := w.programs[pod.UID]; p != nil {
		p.proxy.Terminating = true
	}
	w.after(w.Between("terminate", 20*time.Millisecond, 4*time.Second), func() { w.endPod(pod) })
}

// endPod ends a Pod's containers for good.
func (w *world) endPod(pod *corev1.Pod) {
	if p := w.programs[pod.UID]; p != nil {
		p.end()
		p.dead = true
	}
	w.endLauncher(pod)
	w.api.changePod(pod, ended)
	w.after(w.Between("scheduler", time.Millisecond, 100*time.Millisecond), w.schedule)
}

func (w *world) endLauncher(pod *corev1.Pod) {
	if l := w.launchers[string(pod.UID)]; l != nil && !l.dead {
		l.endContainer()
		l.dead = true
	}
}

// podGone is what happens once a Pod is gone.
func (w *world) podGone(pod *corev1.Pod) {
	w.endLauncher(pod)
	if l := w.launchers[string(pod.UID)]; l != nil {
		w.after(w.Between("DaemonSet", 50*time.Millisecond, time.Second), func() { w.addLauncher(l.node, l.gpus) })
	}
	if p := w.programs[pod.UID]; p != nil && !p.dead { // it was deleted by force
		w.after(w.Between("terminate", 20*time.Millisecond, 2*time.Second), func() {
			p.end()
			p.dead = true
		})
	}
	w.after(w.Between("scheduler", time.Millisecond, 100*time.Millisecond), w.schedule)
}

// forceDelete deletes a Pod at once, whatever keeps it.
func (a *api) forceDelete(pod *corev1.Pod) {
	a.changePod(pod, func(p *corev1.Pod) { p.Finalizers = nil })
	if there := a.podOf(pod.Name, pod.UID); there != nil {
		a.remove(there, 0)
	}
	if there := a.podOf(pod.Name, pod.UID); there != nil {
		zero := int64(0)
		a.changePod(there, func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = &zero })
	}
}
