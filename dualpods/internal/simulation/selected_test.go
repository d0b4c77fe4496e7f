package simulation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// simLabel is the label of a node that all LauncherConfigs select.
const simLabel = "pool"

func (w *world) isSelected(node string) bool {
	o, there := w.api.objects[nodes][node]
	return there && o.GetLabels()[simLabel] != ""
}

// selectNode gives a node the label, or takes it off.
func (w *world) selectNode(name string, on bool) {
	if w.isSelected(name) == on {
		return
	}
	change(w.api, nodes, name, func(n *corev1.Node) {
		if delete(n.Labels, simLabel); on {
			n.Labels[simLabel] = "yes"
		}
	})
}

// selected notes which nodes are selected.
func (t *truth) selected() {
	for node := range t.w.api.objects[nodes] {
		if t.w.isSelected(node) {
			t.set(fact{"selected", "", node, ""}, yes)
		}
	}
}

// unselect takes the label off a node for a while.
func (w *world) unselect(e event, node string) {
	w.selectNode(node, false)
	w.after(e.lasts(20*time.Second, 3*time.Minute), func() { w.selectNode(node, true) })
}

// checkSelected looks whether a sleeper is promised whose launcher gets no new requesters.
func (w *world) checkSelected(pod *corev1.Pod, l *launcher) {
	if w.truth.steady(fact{"selected", "", l.disk.node, ""}, "") && w.api.objects[nodes][l.disk.node] != nil {
		w.violated("promised by a launcher that gets no requesters", "%s on %s", pod.Name, l.disk.node)
	}
}
