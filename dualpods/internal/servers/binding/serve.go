package binding

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// subjects are the requesters there are, and those of which a record alone tells.
func (w *world) subjects() []dualpods.Identity {
	var ids []dualpods.Identity
	for _, pod := range w.pods {
		ids = append(ids, dualpods.IdentityOf(pod))
	}
	for _, l := range w.launchers {
		for n := range l.bindings {
			if id := dualpods.IdentityIn(&l.bindings[n]); w.pod(id) == nil && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	// Requesters that leave make room for those that come. Requesters that are bound may have a
	// model that is awake by now, and want little. Otherwise the older one goes first.
	slices.SortFunc(ids, func(a, b dualpods.Identity) int { return w.rank(a).compare(w.rank(b)) })
	return ids
}

type rank struct {
	turn  turn
	since time.Time
	id    dualpods.Identity
}

// turn is which kind of requester is looked at first in a pass.
type turn int

const (
	leaves turn = iota
	isBound
	comes
)

func (w *world) rank(id dualpods.Identity) rank {
	pod := w.pod(id)
	if pod == nil {
		return rank{id: id}
	}
	r := rank{turn: comes, since: pod.CreationTimestamp.Time, id: id}
	if _, record := w.boundTo(id); record != nil {
		r.turn = isBound
	}
	if !pod.DeletionTimestamp.IsZero() {
		r.turn = leaves
	}
	return r
}

func (r rank) compare(other rank) int {
	switch {
	case r.turn != other.turn:
		return int(r.turn - other.turn)
	case !r.since.Equal(other.since):
		return r.since.Compare(other.since)
	}
	return cmp.Or(cmp.Compare(r.id.UID, other.id.UID), cmp.Compare(r.id.Namespace, other.id.Namespace))
}

// serve takes the steps for all requesters of a node. failed counts the passes, one after the
// other, in which a step could not be taken.
func (c *Controller) serve(ctx context.Context, n *nodeWork, w *world, subjects []dualpods.Identity) (again time.Duration, failed int) {
	settled := func(id dualpods.Identity, after time.Duration, err error) {
		if err != nil && ctx.Err() == nil {
			after = retryAfter
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // what the cache lacks yet
				c.log.Error(err, "cannot take a step", "requester", id.UID, "namespace", id.Namespace, "node", n.name)
				failed = n.failed + 1
				after = n.pause()
			}
		}
		again = dualpods.Sooner(again, after)
	}
	for _, id := range subjects {
		came := w.rank(id).turn == comes
		after, err := c.settle(ctx, n, w, id)
		settled(id, after, err)
		if came && c.news(w) { // a model may be awake: whom it serves goes before others that come
			again = soon
			break
		}
	}
	for records := c.writeRecords(ctx, n, w); len(records) > 0; records = c.writeRecords(ctx, n, w) {
		for _, r := range records {
			after, err := time.Duration(0), r.err
			if err == nil {
				after, err = c.settle(ctx, n, w, r.id)
			}
			settled(r.id, after, err)
		}
	}
	return again, failed
}

// soon is when a pass is made that was broken off.
const soon = time.Millisecond

// news says that a launcher has told something since the pass began.
func (c *Controller) news(w *world) bool {
	return slices.ContainsFunc(w.launchers, func(l *launcherPod) bool { return c.opts.Providers.Pick(l.key(), nil).Revision != l.began })
}

// most bounds the steps for one requester in a pass.
const most = 16

// settle takes steps for one requester until there is none to take now, and says
// when to look again, if nothing else tells. A new record is written with those of other
// requesters, at the end of the pass.
func (c *Controller) settle(ctx context.Context, n *nodeWork, w *world, id dualpods.Identity) (again time.Duration, err error) {
	for range most {
		o := c.observe(ctx, n, w, id)
		sight := Sight{Node: n.name, Observation: o, Leaving: o.IsLeaving(), Serving: o.ServesThroughDelay(), Step: decide.By(&o, c.tables), Began: c.opts.Now()}
		if sight.Step.Do != decide.Nothing && w.recalled[id.UID] {
			c.askAnew(ctx, n, w, id.UID)
			continue
		}
		n.keepAnswer(w, &o, sight.Step)
		var over bool
		if sight.Step.Do == decide.AddRecord {
			if err = c.stageRecord(n, w, id, sight); err == nil {
				return 0, nil // the Observer sees it when it is written
			}
		} else {
			again, over, err = c.take(ctx, n, w, o, sight.Step)
		}
		sight.Ended, sight.Err = c.opts.Now(), err
		c.opts.Observer.Saw(sight)
		if over || err != nil {
			return again, err
		}
	}
	return retryAfter, nil
}

func uidsOf(requesters []dualpods.Identity) (uids []types.UID) {
	for _, id := range requesters {
		uids = append(uids, id.UID)
	}
	return uids
}
