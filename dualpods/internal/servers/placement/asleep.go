package placement

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Asleep is a sleeping server on free GPUs of a node.
type Asleep struct {
	Node string
	GPUs []string // UUIDs
}

// Sleepers finds the sleepers of requesters that have no node yet, whatever their gates. It places none.
type Sleepers struct{ c *Controller }

// NewSleepers makes Sleepers.
func NewSleepers(opts Options) *Sleepers { return &Sleepers{New(opts)} }

// Of returns the sleepers that each requester could wake, the one that was used last first, by the UIDs of
// the requesters. Sleepers that are promised to others do not count.
func (s *Sleepers) Of(ctx context.Context, pods []*corev1.Pod) (map[types.UID][]Asleep, error) {
	c := s.c
	w := &World{Now: c.opts.Now(), CandidateIDs: c.opts.Views.CandidateIDs, Taken: map[string]map[string]bool{}, Promised: map[Sleeper]bool{}}
	var promises, providers corev1.PodList
	nodes, err := c.nodes(ctx)
	if err := errors.Join(err, c.list(ctx, &promises, promised), c.list(ctx, &providers, provider)); err != nil {
		return nil, err
	}
	w.Nodes = nodes
	bound, err := c.launchers(ctx, w, providers.Items)
	if err != nil {
		return nil, err
	}
	w.keepPromises(promises.Items, bound)
	d, found := newDecision(w), make(map[types.UID][]Asleep, len(pods))
	for _, pod := range pods {
		r, err := c.requester(ctx, pod)
		if err != nil {
			return nil, err
		}
		if len(r.Problems) > 0 {
			continue
		}
		for _, p := range d.nearbyPlaces(&r) {
			if p.sleeper != (Sleeper{}) && d.gpusFree(p.node, p.gpus) {
				found[pod.UID] = append(found[pod.UID], Asleep{p.node, p.gpus})
			}
		}
	}
	return found, nil
}

// keepPromises reserves the sleepers of requesters that may still use those that they were promised.
func (w *World) keepPromises(pods []corev1.Pod, bound map[dualpods.Identity]bool) {
	for i := range pods {
		pod := &pods[i]
		p, _ := podmeta.ReadPlacement(pod)
		if !bound[dualpods.IdentityOf(pod)] && w.mayStillUse(pod, p) {
			w.promise(p)
		}
	}
}
