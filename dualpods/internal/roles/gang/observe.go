package gang

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Index is the cache's index of the Pods that this package handles, beside groups.Index.
const Index = "gang"

// Values in the index.
const (
	gated = "gated" // Pods that carry the gate
	takes = "takes" // Pods that have GPUs of a node
)

// Indexed returns a Pod's values in the index.
func Indexed(pod *corev1.Pod) []string {
	switch {
	case podmeta.AwaitsGang(pod) && !dualpods.RequesterOf(pod).IsOver():
		return []string{gated}
	case takesGPUs(pod):
		return []string{takes}
	default:
		return nil
	}
}

// takesGPUs reports whether a Pod has GPUs of a node. It has them until its containers have ended.
func takesGPUs(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !podmeta.Finished(pod) && podmeta.ReservedGPUs(&pod.Spec) > 0
}

// observe reads the World, and the Pods that carry the gate and belong to no ModelServing.
func (c *Controller) observe(ctx context.Context) (w *World, strangers []*corev1.Pod, err error) {
	w = &World{Now: c.opts.Now()}
	var waiting corev1.PodList
	var servings v1alpha1.ModelServingList
	if err := c.opts.API.List(ctx, &waiting, client.MatchingFields{Index: gated}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("cannot list the Pods with the gate %s: %w", podmeta.GateGang, err)
	}
	if err := c.opts.API.List(ctx, &servings, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("cannot list the ModelServings: %w", err)
	}
	c.templates.Begin()
	waits := map[types.UID]bool{}
	for i := range waiting.Items {
		if owner := podmeta.ServingOf(&waiting.Items[i]); owner != nil {
			waits[owner.UID] = true
		} else {
			strangers = append(strangers, &waiting.Items[i])
		}
	}
	for i := range servings.Items {
		if s := &servings.Items[i]; waits[s.UID] || isUnderWay(s, w) {
			gangs, err := c.gangsOf(ctx, s)
			if err != nil {
				return nil, nil, err
			}
			w.Gangs = append(w.Gangs, gangs...)
		}
	}
	if len(w.Gangs) > 0 {
		w.Nodes, err = c.nodes(ctx)
	}
	if err == nil {
		err = c.observeSleepers(ctx, w)
	}
	return w, strangers, err
}

// observeSleepers adds the sleepers of groups that a domain is to be chosen for.
func (c *Controller) observeSleepers(ctx context.Context, w *World) (err error) {
	var pods []*corev1.Pod
	for _, g := range w.Gangs {
		if g.topology() == nil && g.roleTopology() == nil || g.isAdmitted() || g.isPlaced() {
			continue
		}
		for _, m := range at(g.counted, isGated) {
			pods = append(pods, m.Pod)
		}
	}
	if len(pods) > 0 && c.opts.Sleepers != nil {
		w.Sleepers, err = c.opts.Sleepers(ctx, pods)
	}
	return err
}

// isUnderWay reports whether the Pods of a group are about to get nodes.
func isUnderWay(s *v1alpha1.ModelServing, w *World) bool {
	return slices.ContainsFunc(s.Status.Groups, func(g v1alpha1.ServingGroupStatus) bool {
		return g.Gang != nil && (g.Gang.State == v1alpha1.GangAdmitted || w.Now.Before(g.Gang.Since.Add(placingLimit)))
	})
}

// gangsOf reads the groups of a ModelServing.
func (c *Controller) gangsOf(ctx context.Context, s *v1alpha1.ModelServing) (all []*Gang, err error) {
	var owned corev1.PodList
	if err := c.opts.API.List(ctx, &owned, client.InNamespace(s.Namespace), client.MatchingFields{groups.Index: string(s.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of ModelServing %s: %w", client.ObjectKeyFromObject(s), err)
	}
	pods := make(map[string]*corev1.Pod, len(owned.Items))
	for i := range owned.Items {
		pods[owned.Items[i].Name] = &owned.Items[i]
	}
	var revisions appsv1.ControllerRevisionList
	if err := c.opts.API.List(ctx, &revisions, client.InNamespace(s.Namespace), client.MatchingFields{groups.Index: string(s.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the revisions of ModelServing %s: %w", client.ObjectKeyFromObject(s), err)
	}
	for _, wanted := range c.templates.WantedGroups(s, revisions.Items, owned.Items) {
		g := Gang{Serving: s, Name: wanted.Name, Ordinal: wanted.Ordinal, Unlisted: wanted.Status == nil}
		if !g.Unlisted && wanted.Status.Gang != nil {
			g.Record = *wanted.Status.Gang
		}
		for _, r := range wanted.Replicas {
			replica := &Replica{Role: r.Role, ID: r.ID}
			for _, name := range r.Pods {
				replica.Pods = append(replica.Pods, &Member{Name: name, Pod: pods[name]})
			}
			g.Replicas = append(g.Replicas, replica)
		}
		all = append(all, NewGang(g))
	}
	return all, nil
}

// nodes returns the nodes, with the GPUs that are free.
func (c *Controller) nodes(ctx context.Context) ([]Node, error) {
	var nodes corev1.NodeList
	var taking corev1.PodList
	if err := c.opts.API.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the nodes: %w", err)
	}
	if err := c.opts.API.List(ctx, &taking, client.MatchingFields{Index: takes}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Pods with GPUs: %w", err)
	}
	taken := make(map[string]int64, len(nodes.Items))
	for i := range taking.Items {
		taken[taking.Items[i].Spec.NodeName] += podmeta.ReservedGPUs(&taking.Items[i].Spec)
	}
	all := make([]Node, 0, len(nodes.Items))
	for i := range nodes.Items {
		has := nodes.Items[i].Status.Allocatable[podmeta.ResourceGPU]
		all = append(all, Node{Node: &nodes.Items[i], Free: has.Value() - taken[nodes.Items[i].Name]})
	}
	slices.SortFunc(all, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
