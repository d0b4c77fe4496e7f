package binding

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
)

// currentAgain is when a cache is compared again that was behind, and longestAsk
// the longest time between two questions to an API server that does not answer:
// until it does, nobody is even told that a model has ended.
const (
	currentAgain = 50 * time.Millisecond
	longestAsk   = 800 * time.Millisecond
)

// untilCurrent has a node's Pods be as new in the cache as the API server has them,
// once before the process does anything on the node: from then on the cache moves
// forward, and what the process writes itself it knows. It is 0 once that is so.
func (c *Controller) untilCurrent(ctx context.Context, n *nodeWork, w *world) (again time.Duration) {
	if n.current || n.name == "" || len(w.pods)+len(w.launchers) == 0 {
		return 0
	}
	again = c.untilAsNew(ctx, n, w)
	n.current = again == 0
	return again
}

// untilAsNew is 0 where a node's Pods are as new in the cache as the API server has
// them, and else when to compare them again.
func (c *Controller) untilAsNew(ctx context.Context, n *nodeWork, w *world) (again time.Duration) {
	if c.opts.Pods == nil {
		return 0
	}
	there, err := c.opts.Pods(ctx, n.name)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Error(err, "cannot ask the API server for the Pods of a node", "node", n.name)
		}
		again, n.failed = min(n.pause(), longestAsk), n.failed+1
		return again
	}
	ours, err := c.withoutStrangers(ctx, there)
	if err != nil {
		c.log.Error(err, "cannot tell the launchers of a node from other Pods", "node", n.name)
	}
	if err != nil || !w.isAsNewAs(ours) {
		return currentAgain
	}
	return 0
}

// withoutStrangers leaves out Pods that have the labels of a launcher and are none, as a
// pass does.
func (c *Controller) withoutStrangers(ctx context.Context, pods []corev1.Pod) (ours []corev1.Pod, err error) {
	launchers := dualpods.NewLaunchers(c.opts.API)
	for i := range pods {
		kind, _, err := launchers.KindOf(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		if kind.IsLauncher() || kind == dualpods.KindRequester {
			ours = append(ours, pods[i])
		}
	}
	return ours, nil
}

// isAsNewAs says that requesters and launchers are the same, and as they are or
// newer, as these.
func (w *world) isAsNewAs(there []corev1.Pod) bool {
	known := map[types.UID]string{}
	for _, pod := range w.pods {
		known[pod.UID] = pod.ResourceVersion
	}
	for _, l := range w.launchers {
		known[l.pod.UID] = l.pod.ResourceVersion
	}
	for i := range there {
		version, ok := known[there[i].UID]
		if !ok || older(version, there[i].ResourceVersion) {
			return false
		}
	}
	return len(there) == len(known)
}
