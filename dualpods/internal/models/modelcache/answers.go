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

// Call is a call to a launcher to pull the model of a cache. With Remove, it is a call to drop
// the model of that id for the holder.
type Call struct {
	Launcher string // UID
	Holder   string
	Remove   string
}

// Answer is the state of a call.
type Answer struct {
	Running         bool
	CalledAt        time.Time // when the call began
	AnsweredAt      time.Time // when it was answered
	Tries           int       // consecutive failures
	Err             string    // error of the last try; empty: it succeeded
	Cause           string    // the code of Err, such as NotFound
	PreviousFailure failure   // last failure before this try, until the store has the whole model
	Model           launcherapi.Model
	RequestHash     string // PullRequest.RequestHash of the request
	// StoreBytes is what the launcher's store held when it was looked at last after this try
	// failed for want of room, in bytes; 0: it was not.
	StoreBytes int64
}

// watchDelay is the longest time between an answer and the event by which the launcher's
// watch stream shows its effect.
const watchDelay = 10 * time.Second

// failure is the reason of a failure and its code. The zero value means no failure.
type failure struct{ why, cause string }

// lastFailure returns the last failure.
func (a Answer) lastFailure() failure {
	if a.Err != "" {
		return failure{a.Err, a.Cause}
	}
	return a.PreviousFailure
}

// sourceWait is how long a call that waits for its source keeps other models from the store.
// Most sources answer sooner, and then the store fetches one model after the other.
const sourceWait = 2 * time.Second

// pending reports whether a call runs, or its effect is not visible yet.
func (a Answer) pending(now time.Time) bool {
	return a.Running || a.Err == "" && !a.AnsweredAt.IsZero() && now.Sub(a.AnsweredAt) < watchDelay
}

// Bounds of the back-off after a failed call.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
)

// retryAt returns when to repeat a failed call.
func (a Answer) retryAt() time.Time {
	pause := firstBackoff << min(max(a.Tries-1, 0), 10)
	return a.AnsweredAt.Add(min(pause, maxBackoff))
}

// updateAnswers records as failed the calls whose model a launcher reports as failed, so that each
// retry backs off longer. It forgets answers that are not needed any more. The caller
// holds the lock.
func (c *Controller) updateAnswers(w *World) {
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
		case a.pending(w.Now): // the watch stream may not show the effect yet
			return false
		case call.Remove != "":
			_, there := l.Models[call.Remove]
			return a.Err == "" || l.Models != nil && !there
		default:
			return !holders[call.Holder] || a.Err == "" && l.modelInState(call.Holder, launcherapi.ModelReady) != nil
		}
	})
	for call, a := range c.answers {
		if call.Remove != "" || a.Running || a.Err != "" || a.pending(w.Now) {
			continue
		}
		l := launchers[call.Launcher]
		if l.modelInState(call.Holder, launcherapi.ModelDownloading) != nil { // what failed is an earlier version
			continue
		}
		if m := l.modelInState(call.Holder, launcherapi.ModelFailed); m != nil {
			a.AnsweredAt, a.Err, a.Cause = w.Now, m.Reason, m.Cause
			a.Tries++
			c.answers[call] = a
		}
	}
	c.retryWithMoreRoom(launchers)
}

// retryWithMoreRoom repeats calls that failed for want of room when the store has more room. The
// caller holds the lock.
func (c *Controller) retryWithMoreRoom(launchers map[string]*Launcher) {
	for call, a := range c.answers {
		if l := launchers[call.Launcher]; a.Err != "" && a.Cause == fetchapi.ReasonCapacityExceeded && l != nil && l.Models != nil {
			c.answers[call] = a.withStoreBytes(l.publishedBytes())
		}
	}
}

// withStoreBytes returns the answer of a store without room, with the bytes that the store holds
// now. When the store holds less than before, the controller repeats the call at once.
func (a Answer) withStoreBytes(held int64) Answer {
	if held < a.StoreBytes {
		a.AnsweredAt = time.Time{}
	}
	a.StoreBytes = held
	return a
}

// publishedBytes returns the size of the models in a launcher's store that were published. Other
// files come and go with each fetch.
func (l *Launcher) publishedBytes() (bytes int64) {
	for _, m := range l.Models {
		if m.Published != 0 {
			bytes += m.Bytes
		}
	}
	return bytes
}

// modelInState returns a model in that state that a holder wants from a launcher; nil: none.
func (l *Launcher) modelInState(holder, state string) *launcherapi.Model {
	for _, m := range l.Models {
		if m.State == state && slices.Contains(m.WantedBy, holder) {
			return m.Model
		}
	}
	return nil
}

// callTimeout bounds a call, which includes the answer of the model's source.
const callTimeout = 2 * time.Minute

// startCall starts a call in the background, and requests a pass after it.
func (c *Controller) startCall(call Call, wanted PullRequest) {
	to := c.opts.Launchers.Client(call.Launcher)
	if to == nil {
		return // the launcher is not watched any more; that causes another pass
	}
	c.mu.Lock()
	answer := c.answers[call]
	if answer.RequestHash != wanted.RequestHash {
		answer = Answer{RequestHash: wanted.RequestHash}
	}
	answer.Running, answer.CalledAt, answer.StoreBytes = true, c.opts.Now(), 0
	c.answers[call] = answer
	c.mu.Unlock()
	c.calls.Go(func() {
		ctx, stop := context.WithTimeout(c.ctx, callTimeout)
		defer stop()
		var err error
		if call.Remove != "" {
			_, err = to.RemoveModel(ctx, call.Remove, call.Holder)
		} else {
			answer.Model, err = to.PullModel(ctx, launcherapi.ModelRequest{
				URI: wanted.URI, Ref: wanted.Ref, Include: wanted.Include, Exclude: wanted.Exclude,
				WantedBy: call.Holder, Retention: wanted.Retention, Private: wanted.Private, Warm: wanted.Warm,
				ExpectedBytes: wanted.ExpectedBytes, ExpectedDigest: wanted.ExpectedDigest, Credentials: wanted.Credentials,
				UnlessThere: true, // a whole model stays; only its settings change
			})
		}
		if call.Remove != "" && launcher.CodeOf(err) == launcherapi.CodeNotFound {
			err = nil
		}
		answer.PreviousFailure = answer.lastFailure()
		answer.Running, answer.AnsweredAt, answer.Err, answer.Cause = false, c.opts.Now(), "", ""
		if err != nil {
			answer.Tries++
			answer.Err, answer.Cause = errorDetail(err)
			c.opts.Log.Info("a call to a launcher for a model cache failed", "holder", call.Holder, "uri", wanted.URI, "remove", call.Remove, "error", err.Error())
		}
		c.mu.Lock()
		c.answers[call] = answer
		c.mu.Unlock()
		c.opts.Again()
	})
}

// errorDetail returns the text of an error for people, and its code.
func errorDetail(err error) (text, cause string) {
	if e, ok := errors.AsType[*launcher.Error](err); ok {
		return e.Detail, e.FailureCause
	}
	return err.Error(), ""
}
