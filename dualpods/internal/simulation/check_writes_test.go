package simulation

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/spec/modelref"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// checkStatus holds what a controller tells against what has been so for a while.
func (w *world) checkStatus(p *process, c *v1alpha1.ClusterModelCache) {
	if p.dead {
		return
	}
	states := map[string]v1alpha1.ModelNodeState{}
	for _, n := range c.Status.Nodes {
		states[n.Node] = n.State
		is, steady := w.truth.is(fact{"node", string(c.UID), n.Node, ""}, notices)
		if n.State == v1alpha1.ModelNodeReady && steady && (is == lacks || is == noPlace && !w.mayStay(p, c, n.Node) || is == "") {
			w.violated("called Ready", "%s for %s, which %q", n.Node, c.Name, is)
		}
	}
	for _, o := range w.api.objects[nodes] {
		node := o.GetName()
		state, told := states[node]
		if w.truth.steady(fact{"node", string(c.UID), node, ""}, has) && w.heard(c, node) && w.truth.steady(fact{"ready", "", node, ""}, yes) && state != v1alpha1.ModelNodeReady && c.Status.NodesLeftOut == 0 {
			w.violated("not called Ready", "%s for %s, which has it; told: %v %s", node, c.Name, told, state)
		}
	}
}

// mayStay says that a launcher of a group without labels may be replaced on a node, which
// stays in the group meanwhile.
func (w *world) mayStay(p *process, c *v1alpha1.ClusterModelCache, node string) bool {
	const minute = time.Minute + notices
	for _, name := range c.Spec.NodeGroups {
		g, there := w.api.objects[groups][name].(*v1alpha1.ModelCacheNodeGroup)
		k := w.truth.facts[fact{"member", name, node, ""}]
		if there && len(g.Spec.NodeSelector) == 0 && (time.Since(p.born) < minute || k != nil && time.Since(k.since) < minute) {
			return true
		}
	}
	return false
}

// heard says that in each store of a node in which a cache is wanted one launcher has
// answered for a while.
func (w *world) heard(c *v1alpha1.ClusterModelCache, node string) bool {
	for at := range w.wanted(c, node) {
		if _, steady := w.truth.is(fact{"voice", "", at.node, at.path}, notices); !steady {
			return false
		}
	}
	return true
}

// checkPatch looks at a write of a controller that changes an object from there to next.
func (w *world) checkPatch(p *process, there, next client.Object) {
	if pod, is := next.(*corev1.Pod); is && !podmeta.AwaitsPlacement(pod) {
		delete(w.waits, pod.Name)
	}
	if p.dead {
		return
	}
	switch next := next.(type) {
	case *v1alpha1.ClusterModelCache:
		if len(there.GetFinalizers()) > 0 && len(next.Finalizers) == 0 {
			w.checkLetGo(p, next)
		}
	case *corev1.Node:
		w.checkLabels(p, there.(*corev1.Node), next)
	case *corev1.Pod:
		w.checkPlaced(p, next)
	}
}

// checkLetGo looks whether nothing of a cache is left where somebody answers. A node that is
// not ready holds up nobody, and who leads since a moment ago has not heard its launchers.
func (w *world) checkLetGo(p *process, c *v1alpha1.ClusterModelCache) {
	holder := modelcache.Holder(c)
	for _, l := range w.alive() {
		at := store{l.disk.node, l.disk.path}
		v := w.held(at, holder)
		node := w.api.objects[nodes][at.node]
		if v != nil && l.silent && time.Since(l.silence) > notices && node != nil && w.truth.steady(fact{"ready", "", at.node, ""}, yes) && slices.Contains(c.Spec.NodeGroups, l.group) && w.alone(l) {
			w.violated("let go unheard", "%s has %s for %s, and does not answer", l.name, v.id, c.Name)
		}
		unheard := time.Since(p.born) < notices && !w.truth.steady(fact{"ready", "", at.node, ""}, yes)
		if v == nil || unheard || !w.truth.steady(fact{"answers", l.uid, "", ""}, yes) {
			continue
		}
		for _, f := range l.fetching { // it may have come just now
			if f.version == v && time.Since(f.began) < notices {
				v = nil
			}
		}
		if v != nil {
			w.violated("let go too early", "%s has %s for %s", l.name, v.id, c.Name)
		}
	}
}

// alone says that a launcher is the only one of its store.
func (w *world) alone(l *launcher) bool {
	for _, pod := range all[*corev1.Pod](w.api, pods) {
		if pod.Labels[podmeta.LabelModelNodeGroup] != "" && !w.isStranger(pod) && pod.Spec.NodeName == l.disk.node && pod.Name != l.name && w.pathOf(pod.Labels[podmeta.LabelModelNodeGroup]) == l.disk.path {
			return false
		}
	}
	return true
}

// checkLabels looks at what a controller makes of a node's labels.
func (w *world) checkLabels(p *process, there, next *corev1.Node) {
	for key := range next.Labels {
		name, ours := strings.CutPrefix(key, podmeta.ModelLabelPrefix)
		if _, before := there.Labels[key]; !ours || before {
			continue
		}
		c, known := w.api.objects[caches][name]
		if !known {
			continue
		}
		if is, steady := w.truth.is(fact{"node", string(c.GetUID()), next.Name, ""}, notices); steady && is != has && is != unheard && (is != noPlace || !w.mayStay(p, c.(*v1alpha1.ClusterModelCache), next.Name)) {
			w.violated("labelled", "%s with %s, which %q", next.Name, name, is)
		}
	}
	for key := range there.Labels {
		name, ours := strings.CutPrefix(key, podmeta.ModelLabelPrefix)
		if _, after := next.Labels[key]; !ours || after {
			continue
		}
		c, known := w.api.objects[caches][name]
		if !known || there.Labels[key] == "odd" {
			continue
		}
		is, _ := w.truth.is(fact{"node", string(c.GetUID()), next.Name, ""}, notices)
		if w.truth.steady(fact{"whole", string(c.GetUID()), next.Name, ""}, yes) || is == noPlace && w.truth.steady(fact{"cache", string(c.GetUID()), "", ""}, missing) {
			w.violated("label taken off", "%s, of %s, which %q", next.Name, name, is)
		}
	}
}

// checkPlaced looks at a requester whose gate comes off.
func (w *world) checkPlaced(p *process, pod *corev1.Pod) {
	placed, ok := podmeta.ReadPlacement(pod)
	if !ok {
		w.violated("no reason", "%s is let go, and nobody says why", pod.Name)
		return
	}
	w.checkRequired(pod)
	w.checkNear(pod, placed.Why)
	if placed.Instance == "" {
		return
	}
	l := w.programs[string(placed.Launcher)]
	if l == nil {
		return
	}
	w.checkSelected(pod, l)
	gpus := l.instances[placed.Instance].GPUUUIDs
	for _, other := range all[*corev1.Pod](w.api, pods) {
		before, promised := podmeta.ReadPlacement(other)
		if other.Name == pod.Name || !promised || before.Launcher != placed.Launcher || podmeta.AwaitsPlacement(other) {
			continue
		}
		over := time.Since(before.Since) >= 30*time.Second || w.cares[string(other.UID)] || other.DeletionTimestamp != nil
		away := other.Spec.NodeName != "" && other.Spec.NodeName != l.disk.node
		theirs := l.instances[before.Instance].GPUUUIDs
		shares := before.Instance == placed.Instance || slices.ContainsFunc(gpus, func(g string) bool { return slices.Contains(theirs, g) })
		if !over && !away && shares {
			w.violated("promised twice", "%s on %s, to %s and %s", placed.Instance, l.disk.node, other.Name, pod.Name)
		}
	}
	for _, uuid := range gpus {
		if w.truth.steady(fact{"taken", uuid, "", ""}, yes) {
			w.violated("promised a taken GPU", "%s to %s", uuid, pod.Name)
		}
	}
}

// checkNear looks whether a model has long been in the stores of an open node though its
// requester is told that it is near nowhere. Nodes without a label that is demanded are
// not open, and not waited for.
func (w *world) checkNear(pod *corev1.Pod, why string) {
	uri := w.modelOf(pod)
	if !strings.HasPrefix(why, "no node has its model on disk, or asleep on free GPUs") || strings.Contains(why, "Require") {
		return
	}
	near := map[string]bool{} // nodes of whose launchers each has it
	for _, of := range all[*corev1.Pod](w.api, pods) {
		if of.Labels[podmeta.LabelComponent] != podmeta.ComponentLauncher || w.isStranger(of) {
			continue
		}
		l, others := w.programs[string(of.UID)], true
		if is, known := near[of.Spec.NodeName]; known {
			others = is
		}
		near[of.Spec.NodeName] = others && podmeta.Ready(of) && l != nil && w.truth.steady(fact{"answers", l.uid, "", ""}, yes) && w.truth.steady(fact{"selected", "", of.Spec.NodeName, ""}, yes) && l.stores(uri)
	}
	for _, node := range sorted(near) {
		if o, there := w.api.objects[nodes][node].(*corev1.Node); there && near[node] && !o.Spec.Unschedulable {
			w.violated("placed blindly", "%s, whose model is on %s", pod.Name, node)
		}
	}
}

// stores says that a launcher has had a model whole for a while.
func (l *launcher) stores(uri string) bool {
	for id, m := range l.shown() {
		if nodeview.Whole(nodeview.NewModel(m), modelref.Name{Model: uri}) && time.Since(l.disk.versions[id].published) >= notices {
			return true
		}
	}
	return false
}

// checkRequired looks whether the label of a model is demanded where its cache says so,
// and only there.
func (w *world) checkRequired(pod *corev1.Pod) {
	label := ""
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				label, _ = strings.CutPrefix(e.Key, podmeta.ModelLabelPrefix)
			}
		}
	}
	c := w.cacheOfModel(w.modelOf(pod))
	switch {
	case c == nil:
	case c.Spec.Scheduling == v1alpha1.SchedulingRequire && label != c.Name && w.truth.steady(fact{"scheduling", c.Spec.Source.URI, "", ""}, schedulingOf(c)):
		w.violated("may go elsewhere", "%s, though %s says Require", pod.Name, c.Name)
	case c.Spec.Scheduling != v1alpha1.SchedulingRequire && label != "" && w.truth.steady(fact{"scheduling", c.Spec.Source.URI, "", ""}, schedulingOf(c)):
		w.violated("required", "%s, though %s says %s", pod.Name, c.Name, c.Spec.Scheduling)
	}
}

func schedulingOf(c *v1alpha1.ClusterModelCache) string {
	return c.Name + " " + string(c.Spec.Scheduling)
}

// cacheOfModel is the oldest cache of a model that is not being deleted.
func (w *world) cacheOfModel(uri string) (oldest *v1alpha1.ClusterModelCache) {
	for _, c := range all[*v1alpha1.ClusterModelCache](w.api, caches) {
		if c.Spec.Source.URI == uri && c.DeletionTimestamp == nil && (oldest == nil || c.CreationTimestamp.Before(&oldest.CreationTimestamp)) {
			oldest = c
		}
	}
	return oldest
}
