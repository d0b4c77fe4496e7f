package simulation

import (
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// follower is a client that follows the events, through all lives of the launcher.
type follower struct {
	l       *life
	known   map[string]launcherapi.Instance
	upTo    uint64
	highest uint64 // revision ever heard of
	// touchedBy are the instances that swaps moved, by the id of the swap.
	touchedBy map[string]string
}

// follow replays the events up to the revision of a list, and compares.
func (f *follower) follow(w *world, all []launcherapi.Instance, revision uint64) {
	if f.l != w.life {
		f.l, f.upTo, f.known = w.life, revision, map[string]launcherapi.Instance{}
		for _, i := range all {
			f.known[i.InstanceID] = i
		}
		if f.highest > 0 && revision < f.highest {
			w.m.wrong(revisionsGrow, "a list has revision %d, after %d in an earlier life", revision, f.highest)
		}
	}
	for f.upTo < revision {
		events, err := f.l.feed.Next(f.l.ctx, f.upTo)
		if err != nil {
			w.m.wrong(eventsTellTheList, "cannot follow: %v", err)
			return
		}
		for _, e := range events {
			if e.Object.Revision <= revision {
				f.hear(w, e)
			}
		}
	}
	f.highest = max(f.highest, revision)
	f.compare(w, all)
}

func (f *follower) hear(w *world, e launcherapi.WatchEvent) {
	w.note("event %s %s %s", e.Type, e.Object.InstanceID, e.Object.State)
	if e.Object.Revision <= f.upTo || e.Object.Revision <= f.highest && f.upTo < f.highest {
		w.m.wrong(revisionsGrow, "an event has revision %d, after %d", e.Object.Revision, max(f.upTo, f.highest))
	}
	f.upTo, f.highest = e.Object.Revision, max(f.highest, e.Object.Revision)
	f.known[e.Object.InstanceID] = e.Object
	if e.Object.SwapID != "" {
		if f.touchedBy == nil {
			f.touchedBy = map[string]string{}
		}
		f.touchedBy[e.Object.SwapID] = e.Object.InstanceID
	}
	if e.Type == launcherapi.EventDeleted {
		delete(f.known, e.Object.InstanceID)
	}
}

func (f *follower) compare(w *world, all []launcherapi.Instance) {
	if len(all) != len(f.known) {
		w.m.wrong(eventsTellTheList, "the events tell of %d instances, the list of %d", len(f.known), len(all))
	}
	for _, i := range all {
		told := f.known[i.InstanceID]
		if told.State != i.State || told.PID != i.PID || told.Port != i.Port || told.Reason != i.Reason || told.SleepLevel != i.SleepLevel || told.SwapID != i.SwapID {
			w.m.wrong(eventsTellTheList, "%s: %s, %d, port %d, level %d, swap %q, %q by the events, %s, %d, port %d, level %d, swap %q, %q by the list",
				i.InstanceID, told.State, told.PID, told.Port, told.SleepLevel, told.SwapID, told.Reason, i.State, i.PID, i.Port, i.SleepLevel, i.SwapID, i.Reason)
		}
	}
}

// hearLast takes note of what a life told before its end.
func (f *follower) hearLast(w *world) { f.highest = max(f.highest, w.life.lastRevision) }

// hasSleptAgain says whether an instance came back to its sleep after a time: a wake that was
// asked for then has failed.
func (l *life) hasSleptAgain(id string, since time.Time) bool {
	for at := l.firstRevision; at < l.feed.Revision(); {
		events, err := l.feed.Next(l.ctx, at)
		if err != nil {
			return false // the launcher is dead
		}
		for _, e := range events {
			at = e.Object.Revision
			if e.Object.InstanceID == id && e.Object.State == string(launcher.Sleeping) && e.Object.StateSince.After(since) {
				return true
			}
		}
	}
	return false
}
