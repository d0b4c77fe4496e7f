package simulation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods"
	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
)

// becomesReady has a launcher's Pod become ready: at once, or late though its program runs.
func (w *world) becomesReady(name string) {
	ready := func() {
		change(w.api, pods, name, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
	}
	if !w.Chance("ready late", 15) {
		ready()
		return
	}
	w.after(w.Between("ready late for", time.Second, 40*time.Second), func() {
		if w.api.objects[pods][name] != nil {
			ready()
		}
	})
}

// server returns the launcher of a node that is to serve a requester, as binding chooses it;
// nil: there is none.
func (w *world) server(node string, requester *corev1.Pod) *launcher {
	here := slices.DeleteFunc(w.alive(), func(l *launcher) bool { return l.disk.node != node })
	need := dualpods.LauncherNeed{Namespace: "ns", Node: node}
	if placed, ok := podmeta.ReadPlacement(requester); ok {
		need.Placed = placed.Launcher
	}
	l, _, _ := dualpods.ChooseLauncher(&need, here, func(l *launcher) dualpods.Provider {
		return dualpods.ProviderOf(w.api.objects[pods][l.name].(*corev1.Pod), 0)
	})
	return l
}

// checkBound looks at a requester that is bound: if the sleeper that was promised to it is on
// its GPU, and the sleeper's launcher works, it gets that one.
func (w *world) checkBound(pod *corev1.Pod, l *launcher, instance, gpu string) {
	placed, ok := podmeta.ReadPlacement(pod)
	of := w.programs[string(placed.Launcher)]
	if !ok || of == nil || !of.up || of.disk.node != l.disk.node {
		return
	}
	on, there := w.api.objects[pods][of.name].(*corev1.Pod)
	i, sleeps := of.instances[placed.Instance]
	if !there || !on.DeletionTimestamp.IsZero() || !sleeps || i.State != string(program.Sleeping) || !slices.Contains(i.GPUUUIDs, gpu) {
		return
	}
	if of != l || placed.Instance != instance {
		w.violated("placed for one, bound to another", "%s was promised %s of %s, and is bound to %s of %s", pod.Name, placed.Instance, of.name, instance, l.name)
	}
}
