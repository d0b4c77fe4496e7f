package modelcache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Uses returns a text for each node that uses the model of a cache. The text lists the instances
// whose leases keep the model, as launchers report them now. It also lists the Pods that mount
// the model on ready nodes. Silent launchers and the status of the cache do not count.
func (c *Controller) Uses(ctx context.Context, cache *v1alpha1.ClusterModelCache) ([]string, error) {
	var pods, mounting corev1.PodList
	if err := errors.Join(
		c.opts.API.List(ctx, &pods, client.MatchingFields{IndexStore: hasStore}, client.UnsafeDisableDeepCopy),
		c.opts.API.List(ctx, &mounting, client.MatchingFields{modelvolume.Index: modelvolume.NamesOne}, client.UnsafeDisableDeepCopy),
	); err != nil {
		return nil, fmt.Errorf("cannot list the launchers and the Pods that mount models: %w", err)
	}
	users := map[string][]string{} // by node: two launchers may share a folder
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" || podmeta.Finished(pod) {
			continue
		}
		for _, m := range c.opts.Launchers.Pick(string(pod.UID), nil).Models {
			if slices.Contains(m.WantedBy, Holder(cache)) {
				users[pod.Spec.NodeName] = append(users[pod.Spec.NodeName], m.InUseBy...)
			}
		}
	}
	for node, of := range modelvolume.UsersOf(mounting.Items)[cache.Name] {
		var there corev1.Node
		if node != "" && c.opts.API.Get(ctx, client.ObjectKey{Name: node}, &there) == nil && !Down(&there) {
			users[node] = append(users[node], of...)
		}
	}
	var texts []string
	for node, of := range users {
		slices.Sort(of)
		if of = slices.Compact(of); len(of) > 0 {
			texts = append(texts, "on node "+node+" by "+strings.Join(of, ", "))
		}
	}
	slices.Sort(texts)
	return texts, nil
}
