package modelcache

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Call is what is asked of a launcher: to fetch the model of a cache or, with Remove,
// to have a model of that id wanted no more.
type Call struct {
	Launcher string // UID
	Holder   string
	Remove   string
}

// Answer is what has become of a call.
type Answer struct {
	Running bool
	Since   time.Time // when it was made
	At      time.Time // when it was answered
	Tries   int       // that have failed, one after the other
	Err     string    // of the last; empty: it was done
	Cause   string    // of the error, a code such as NotFound
	Before  failure   // of the last try before that failed, until the store has the model whole
	Model   launcherapi.Model
	Sum     string // Wanted.Sum of what was asked for
	// Held is what the launcher's store held, in bytes, when it was looked at last since it
	// had no room; 0: it was not.
	Held int64
}

// settle is how long after an answer the launcher's watch may take to show what has
// come of the call.
const settle = 10 * time.Second

// failure is why something has failed, and a code for it; the zero value: nothing has.
type failure struct{ why, cause string }

// last is how the last try failed that did.
func (a Answer) last() failure {
	if a.Err != "" {
		return failure{a.Err, a.Cause}
	}
	return a.Before
}

// moment is how long a call whose model's source has not answered keeps other models from
// the store: a source that answers soon has its model fetched before another is asked for.
const moment = 2 * time.Second

// pending says that a call runs, or that what has come of it is not known yet.
func (a Answer) pending(now time.Time) bool {
	return a.Running || a.Err == "" && !a.At.IsZero() && now.Sub(a.At) < settle
}

// Pauses before a call that has failed is made again.
const (
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
)

// again is when a call that has failed is made again.
func (a Answer) again() time.Time {
	pause := firstPause << min(max(a.Tries-1, 0), 10)
	return a.At.Add(min(pause, longestPause))
}

// note makes what launchers show as failed, of what they were asked for last, answers
// that say so, so that the next try comes later each time; and forgets answers that
// nobody needs any more. The lock is held.
func (c *Controller) note(w *World) {
	launchers, holders := map[string]*Launcher{}, map[string]bool{}
	for i := range w.Launchers {
		launchers[w.Launchers[i].UID] = &w.Launchers[i]
	}
	for i := range w.Caches {
		holders[Holder(&w.Caches[i])] = true
	}
	maps.DeleteFunc(c.answers, func(call Call, a Answer) bool {
		l := launchers[call.Launcher]
		switch {
		case a.Running:
			return false
		case l == nil:
			return true
		case a.pending(w.Now): // the watch may not show yet what has come of the call
			return false
		case call.Remove != "":
			_, there := l.Models[call.Remove]
			return a.Err == "" || l.Models != nil && !there
		default:
			return !holders[call.Holder] || a.Err == "" && l.shows(call.Holder, launcherapi.ModelReady) != nil
		}
	})
	for call, a := range c.answers {
		if call.Remove != "" || a.Running || a.Err != "" || a.pending(w.Now) {
			continue
		}
		if m := launchers[call.Launcher].shows(call.Holder, launcherapi.ModelFailed); m != nil {
			a.At, a.Err, a.Cause = w.Now, m.Reason, m.Cause
			a.Tries++
			c.answers[call] = a
		}
	}
	c.noteRoom(launchers)
}

// noteRoom has those asked again that had no room, once there is more. The lock is held.
func (c *Controller) noteRoom(launchers map[string]*Launcher) {
	for call, a := range c.answers {
		if l := launchers[call.Launcher]; a.Err != "" && a.Cause == fetchapi.ReasonCapacityExceeded && l != nil && l.Models != nil {
			c.answers[call] = a.beside(l.published())
		}
	}
}

// beside is an answer that there is no room beside so many bytes. Once there are less of
// them it is asked again at once.
func (a Answer) beside(held int64) Answer {
	if held < a.Held {
		a.At = time.Time{}
	}
	a.Held = held
	return a
}

// published is what the models take, in bytes, that are or were whole in a launcher's store.
// What else is there comes and goes with each fetch.
func (l *Launcher) published() (bytes int64) {
	for _, m := range l.Models {
		if m.Published != 0 {
			bytes += m.Bytes
		}
	}
	return bytes
}

// shows is a model that a launcher has in that state for a holder; nil: there is none.
func (l *Launcher) shows(holder, state string) *launcherapi.Model {
	for _, m := range l.Models {
		if m.State == state && slices.Contains(m.WantedBy, holder) {
			return m.Model
		}
	}
	return nil
}

// callTime bounds a call: the answer waits for the model's source.
const callTime = 2 * time.Minute

// ask makes a call in a goroutine of its own, and has the next pass made after it.
func (c *Controller) ask(call Call, wanted Wanted) {
	to := c.opts.Launchers.Client(call.Launcher)
	if to == nil {
		return // it is not watched any more, which begins another pass
	}
	c.mu.Lock()
	answer := c.answers[call]
	if answer.Sum != wanted.Sum {
		answer = Answer{Sum: wanted.Sum}
	}
	answer.Running, answer.Since = true, c.opts.Now()
	c.answers[call] = answer
	c.mu.Unlock()
	c.calls.Go(func() {
		ctx, stop := context.WithTimeout(c.ctx, callTime)
		defer stop()
		var err error
		if call.Remove != "" {
			_, err = to.RemoveModel(ctx, call.Remove, call.Holder)
		} else {
			answer.Model, err = to.PullModel(ctx, launcherapi.ModelRequest{
				URI: wanted.URI, Ref: wanted.Ref, Include: wanted.Include, Exclude: wanted.Exclude,
				WantedBy: call.Holder, Retention: wanted.Retention, Private: wanted.Private, Warm: wanted.Warm,
				ExpectedBytes: wanted.ExpectedBytes, ExpectedDigest: wanted.ExpectedDigest, Credentials: wanted.Credentials,
				UnlessThere: true, // what is whole was asked for once, and only what is said of it has changed
			})
		}
		if call.Remove != "" && launcher.CodeOf(err) == launcherapi.CodeNotFound {
			err = nil
		}
		answer.Before = answer.last()
		answer.Running, answer.At, answer.Err, answer.Cause = false, c.opts.Now(), "", ""
		if err != nil {
			answer.Tries++
			answer.Err, answer.Cause = detail(err)
			c.opts.Log.Info("a launcher could not do what it was asked for a model cache", "holder", call.Holder, "uri", wanted.URI, "remove", call.Remove, "error", err.Error())
		}
		c.mu.Lock()
		c.answers[call] = answer
		c.mu.Unlock()
		c.opts.Again()
	})
}

// detail is what an error says to people, and its code.
func detail(err error) (text, cause string) {
	if e, ok := errors.AsType[*launcher.Error](err); ok {
		return e.Detail, e.FailureCause
	}
	return err.Error(), ""
}
