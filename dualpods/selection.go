package dualpods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Selection tells which nodes a LauncherConfig selects: by the labels of spec.population, and
// by the node selector and the required node affinity of its Pod template.
type Selection struct {
	population labels.Selector
	template   nodeaffinity.RequiredNodeAffinity
}

// SelectionOf reads which nodes a LauncherConfig selects. It decodes the Pod template, so a
// pass reads it once.
func SelectionOf(config *v1alpha1.LauncherConfig) Selection {
	template, _ := config.Template()
	return Selection{
		population: labels.SelectorFromSet(config.Spec.Population.NodeSelector),
		template:   nodeaffinity.NewRequiredNodeAffinity(template.Spec.NodeSelector, template.Spec.Affinity),
	}
}

// Has reports whether the LauncherConfig selects a node.
func (s *Selection) Has(node *corev1.Node) bool {
	fits, err := s.template.Match(node)
	return err == nil && fits && s.population.Matches(labels.Set(node.Labels))
}

// Cordoned is the taint of a node that was made unschedulable.
var Cordoned = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// Tolerates reports whether a Pod with these tolerations may be placed on a node with these
// taints.
func Tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	_, bars := scheduling.FindMatchingUntoleratedTaint(klog.Background(), taints, tolerations, hard, false)
	return !bars
}

// TakesRequesters reports whether a launcher on a node may get new requesters. The
// LauncherConfig is the one that Of returned; the node is nil where it is not known. An
// orphan keeps the requesters that it has, and gets no new ones. So does a launcher whose
// LauncherConfig is being deleted, or does not select the node any more: it ends once it is
// unbound.
func (l *Launchers) TakesRequesters(config *v1alpha1.LauncherConfig, node *corev1.Node) bool {
	if config == nil || !config.DeletionTimestamp.IsZero() {
		return false
	}
	if node == nil {
		return true
	}
	s, known := l.selections[config.UID]
	if !known {
		s = SelectionOf(config)
		l.selections[config.UID] = s
	}
	return s.Has(node)
}
