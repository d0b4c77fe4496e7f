package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"strconv"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Watch yields the events of the launcher's instances, until the caller's loop or ctx ends. If
// the connection breaks or falls silent, Watch connects again. No event is lost or repeated.
//
// With since, the events begin after that revision, for example that of a list. If the launcher
// no longer has the events after a revision, the error has the code gone ([IsGone]): list the
// instances, and watch from the revision of that list.
//
// Without since, the events begin with a CREATED for each instance. If the launcher no longer
// has the events after a revision, Watch lists the instances and yields the differences: CREATED,
// UPDATED, STOPPED if the instance has ended, and DELETED with the last known object. It then
// skips states in between.
//
// An error ends the loop: the launcher refuses, or cannot be reached (see [Options]).
func (c *Client) Watch(ctx context.Context, since *uint64) iter.Seq2[launcherapi.WatchEvent, error] {
	return func(yield func(launcherapi.WatchEvent, error) bool) {
		w := watch{c: c, yield: yield, known: map[string]*launcherapi.Instance{}, listing: since == nil, stale: since == nil}
		if since != nil {
			w.revision = *since
		}
		w.end(w.run(ctx))
	}
}

// watch is the state of one call of Watch.
type watch struct {
	c        *Client
	yield    func(launcherapi.WatchEvent, error) bool
	listing  bool                             // list the instances if the launcher no longer has the next events
	stale    bool                             // the instances have to be listed
	known    map[string]*launcherapi.Instance // nil where no list will be compared with it
	revision uint64
	weights  weights // of the instances in the events so far
}

var errLeft = errors.New("the loop has ended")

// end yields the error that ends the loop, unless the caller has ended it.
func (w *watch) end(err error) {
	if err != nil && !errors.Is(err, errLeft) {
		w.yield(launcherapi.WatchEvent{}, err)
	}
}

func (w *watch) run(ctx context.Context) error {
	for retry := w.c.retries(); ; {
		if err := w.retry(ctx, retry, w.once(ctx, retry)); err != nil {
			return err
		}
	}
}

// retry waits before the next attempt, after one that ended with err. It returns an error if no
// other attempt should follow.
func (w *watch) retry(ctx context.Context, retry *retries, err error) error {
	switch {
	case errors.Is(err, errLeft):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("cannot watch any longer: %w", context.Cause(ctx))
	case IsGone(err) && w.listing:
		w.stale = true
		err = retry.wait(ctx)
	case temporary(err):
		w.c.log.Debug("the watch broke off", "revision", w.revision, "error", err)
		err = retry.again(ctx, err)
	default:
		return err
	}
	if err != nil {
		return fmt.Errorf("cannot watch any longer: %w", err)
	}
	return nil
}

// once lists the instances if necessary, and yields events until the connection ends.
func (w *watch) once(ctx context.Context, retry *retries) error {
	if w.stale {
		if err := w.list(ctx); err != nil {
			return err
		}
	}
	return w.c.stream(ctx, instancesPath+"/watch", url.Values{"since": {strconv.FormatUint(w.revision, 10)}}, retry.connected, func(event launcherapi.RawEvent) error {
		if err := w.tell(event); err != nil {
			return err
		}
		retry.reset()
		return nil
	})
}

// tell handles an event of the stream.
func (w *watch) tell(event launcherapi.RawEvent) error {
	switch event.Type {
	case launcherapi.EventCreated, launcherapi.EventUpdated, launcherapi.EventStopped, launcherapi.EventDeleted:
		cost, err := costOfEvent(event.Object)
		if err != nil {
			return err
		}
		var object launcherapi.Instance
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return fmt.Errorf("cannot read an event: %w", err)
		}
		if err := w.weigh(event.Type, object.InstanceID, cost); err != nil {
			return err
		}
		return w.pass(event.Type, object, object.Revision)
	case launcherapi.EventError:
		var p launcherapi.Problem
		if err := json.Unmarshal(event.Object, &p); err != nil {
			return fmt.Errorf("cannot read the end of the watch stream: %w", err)
		}
		return errorOf(p)
	default:
		return nil // a heartbeat, or an event type of a later version
	}
}

// weigh limits the cost of all instances, because callers of Watch keep them.
func (w *watch) weigh(kind launcherapi.EventType, id string, cost int) error {
	if kind == launcherapi.EventDeleted {
		w.weights.drop(id)
		return nil
	}
	if err := w.weights.put(id, cost, len(w.known)); err != nil {
		return fmt.Errorf("cannot follow the watch stream: what it tells of its instances %w", err)
	}
	return nil
}

// pass yields an event, and remembers the instance.
func (w *watch) pass(kind launcherapi.EventType, object launcherapi.Instance, revision uint64) error {
	w.revision = revision
	if kind == launcherapi.EventDeleted {
		delete(w.known, object.InstanceID)
	} else if w.listing {
		w.known[object.InstanceID] = &object
	} else {
		w.known[object.InstanceID] = nil
	}
	if !w.yield(launcherapi.WatchEvent{Type: kind, Object: object}, nil) {
		return errLeft
	}
	return nil
}

// list lists the instances, and yields the differences as events.
func (w *watch) list(ctx context.Context) error {
	list, err := w.c.List(ctx)
	if err != nil {
		return err
	}
	gone := maps.Clone(w.known)
	for _, now := range list.Instances {
		before := gone[now.InstanceID]
		delete(gone, now.InstanceID)
		kind, changed := difference(before, &now)
		if !changed {
			continue
		}
		if err := w.pass(kind, now, now.Revision); err != nil {
			return err
		}
	}
	for _, last := range gone {
		if err := w.pass(launcherapi.EventDeleted, *last, last.Revision); err != nil {
			return err
		}
	}
	w.revision, w.stale = list.Revision, false
	w.weights = weights{}
	return nil
}

// difference is the event for an instance that a list has; before: what was known of it, nil if it is new.
func difference(before, now *launcherapi.Instance) (kind launcherapi.EventType, changed bool) {
	switch {
	case before == nil:
		return launcherapi.EventCreated, true
	case before.Revision == now.Revision && before.CreatedAt.Equal(now.CreatedAt):
		return "", false
	case launcher.State(now.State).Ended() && !launcher.State(before.State).Ended():
		return launcherapi.EventStopped, true
	}
	return launcherapi.EventUpdated, true
}
