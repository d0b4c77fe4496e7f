package groups

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/roles/subgroups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// policyOf returns how the replicas of roles with workers are divided; nil: they are not.
func policyOf(template *v1alpha1.ServingGroupTemplate) *subgroups.Policy {
	p := template.SubGroupPolicy
	if p == nil {
		return nil
	}
	return &subgroups.Policy{Size: int(p.SubGroupSize), Type: subgroups.Type(p.SubGroupPolicyType)}
}

func topologyOf(serving *v1alpha1.ModelServing) subgroups.Topology {
	return subgroups.TopologyOf(serving.Annotations, serving.Spec.Template.Gang() != nil || serving.Spec.UsesVolcano())
}

// checkSubgroups returns what is wrong with subgroups and domains.
func checkSubgroups(serving *v1alpha1.ModelServing) []podmeta.Problem {
	var divided []subgroups.Role
	for i := range serving.Spec.Template.Roles {
		if role := &serving.Spec.Template.Roles[i]; role.Size() > 1 {
			divided = append(divided, subgroups.Role{Name: role.Name, Size: role.Size()})
		}
	}
	return subgroups.Validate(policyOf(&serving.Spec.Template), topologyOf(serving), divided...)
}

// subgroupsOf returns the replica that a Pod is of, as package subgroups divides it.
func (w *World) subgroupsOf(p place) *subgroups.Group {
	made := w.templatesOf(p)
	g := &subgroups.Group{Namespace: w.Serving.Namespace, Entry: p.entry().name(), Topology: topologyOf(w.Serving)}
	if made.size > 1 {
		g.Policy = policyOf(w.planOf(p).template)
	}
	for pod := range made.size {
		p.pod = pod
		g.Pods = append(g.Pods, &made.of(p).Spec)
	}
	return g
}

// awaitsDomain reports whether a Pod cannot be created before its entry has a node: it has to run
// in the same domain.
func (w *World) awaitsDomain(m *Member) bool {
	return m.Pod.Is == nil && w.subgroupsOf(m.place).AwaitsEntry(m.pod) && w.domainOf(m.place) == ""
}

// domainOf returns the domain of the entry of a Pod; empty: it is not known.
func (w *World) domainOf(p place) string { return w.Domains[p.entry().name()] }

// observeDomain reads in which domain an entry runs.
func (c *Controller) observeDomain(ctx context.Context, w *World, m *Member) error {
	label := topologyOf(w.Serving).Group
	if label == "" || !m.isEntry() || m.Pod.Is == nil || m.Pod.Is.Spec.NodeName == "" {
		return nil
	}
	var node corev1.Node
	err := c.opts.API.Get(ctx, client.ObjectKey{Name: m.Pod.Is.Spec.NodeName}, &node)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot read node %s: %w", m.Pod.Is.Spec.NodeName, err)
	}
	w.Domains[m.name()] = node.Labels[label]
	return nil
}
