package launcherpool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// node returns the node of that name; nil: there is none.
func (p *Pool) node(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	err := p.opts.API.Get(ctx, client.ObjectKey{Name: name}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read node %s: %w", name, err)
	}
	return &node, nil
}

// selects reports whether the LauncherConfig selects a node.
func (f *observation) selects(node *corev1.Node) bool {
	if f.selection == nil {
		f.selection = new(dualpods.SelectionOf(f.config))
	}
	return f.selection.Has(node)
}

func (f *observation) admits(node *corev1.Node) bool {
	return admits(node, f.config, &f.template.Spec)
}

// admits reports whether a node takes launchers of a template: they tolerate its taints. A
// node that is down or short of something counts as one that does: that passes, or somebody
// removes the node. Until then its launcher is missed.
func admits(node *corev1.Node, config *v1alpha1.LauncherConfig, template *corev1.PodSpec) bool {
	tolerations := slices.Concat(template.Tolerations, passing)
	if config.Spec.Population.Mode != v1alpha1.OnDemand { // a DaemonSet adds it to its Pods
		tolerations = append(tolerations, corev1.Toleration{Key: dualpods.Cordoned.Key, Operator: corev1.TolerationOpExists})
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable { // the taint follows
		taints = append(slices.Clip(taints), dualpods.Cordoned)
	}
	return dualpods.Tolerates(tolerations, taints)
}

// passing tolerates the taints by which Kubernetes tells the state of a node.
var passing = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeNetworkUnavailable, Operator: corev1.TolerationOpExists},
	{Key: "node.cloudprovider.kubernetes.io/shutdown", Operator: corev1.TolerationOpExists},
}

// pressures are the taints of a node that is short of something. Its kubelet refuses new Pods
// meanwhile, also those that tolerate the taint, as the Pods of a DaemonSet do. Under memory
// pressure alone it refuses only Pods without requests.
var pressures = []string{corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure}

// underPressure reports whether a node is short of memory, disk space or process IDs.
func underPressure(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(pressures, t.Key) })
}

// changesPlaces accepts deletions of nodes, and changes of what decides whether launchers may
// run on them: labels and taints.
func changesPlaces() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*corev1.Node)
			after, is := e.ObjectNew.(*corev1.Node)
			return ok && is && (!maps.Equal(before.Labels, after.Labels) || before.Spec.Unschedulable != after.Spec.Unschedulable ||
				!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints))
		},
	}
}
