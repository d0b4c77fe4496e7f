package supervisor

import (
	"context"
	"fmt"
	"maps"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Bounds of the back-off between two attempts to end or adopt a process tree. An attempt
// may fail for a reason that goes away, such as a lack of file descriptors.
const (
	shortestRetry = 100 * time.Millisecond
	longestRetry  = 10 * time.Second
)

// attemptLimit bounds one attempt beyond its grace. If a process does not end in that
// time, because it hangs in a driver, for example, the supervisor tells the watchers and
// retries.
const attemptLimit = 30 * time.Second

// stuckAfter is how long callers wait for an end while all attempts fail.
const stuckAfter = 10 * time.Second

// stopTree ends the whole tree and waits for its device memory.
func (s *Supervisor) stopTree(i *instance, grace time.Duration) {
	s.awaitRecordIfWell(i)
	s.endTree(i, grace, func(ctx context.Context) error {
		if i.tree == nil { // no process was started: the instance still waited
			return s.opts.Runner.Clear(ctx, i.facts.ID)
		}
		return i.tree.Stop(ctx, grace)
	})
}

// clearTree kills the processes that the API server left behind when it exited.
func (s *Supervisor) clearTree(i *instance) {
	s.endTree(i, 0, func(ctx context.Context) error {
		if i.tree == nil {
			return s.opts.Runner.Clear(ctx, i.facts.ID)
		}
		return i.tree.Kill(ctx)
	})
}

// endTree retries until the tree is gone: only then are the instance's memory and ports
// free.
func (s *Supervisor) endTree(i *instance, grace time.Duration, end func(context.Context) error) {
	held, gone := s.endUntilGone(s.ctx, i, grace, end)
	if !gone {
		return // the launcher is ending
	}
	late := s.meter.AwaitReturned(s.ctx, held)
	if i.tree != nil {
		<-i.exitHandled // the root's exit, which has the exit code, is handled before the end of the tree
	}
	if s.ctx.Err() != nil {
		return
	}
	crashpoint.At(crashpoint.StopGone)
	s.onGone(i, late)
}

// endUntilGone retries until the tree is gone, and returns the processes that held its
// device memory. gone is false if ctx ends first.
func (s *Supervisor) endUntilGone(within context.Context, i *instance, grace time.Duration, end func(context.Context) error) (held map[string][]int, gone bool) {
	held = map[string][]int{}
	for wait := shortestRetry; ; wait = min(2*wait, longestRetry) {
		maps.Copy(held, s.meter.Holders(i.facts.ID, i.gpus()))
		ctx, cancel := context.WithTimeout(within, grace+attemptLimit)
		err := end(ctx)
		cancel()
		if within.Err() != nil && err != nil {
			return nil, false
		}
		s.noteAttempt(i, err)
		if err == nil {
			return held, true
		}
		select {
		case <-time.After(wait):
		case <-within.Done():
			return nil, false
		}
	}
}

// noteAttempt records why the tree of an instance could not be ended; nil: the tree is
// gone. It publishes each reason once, and again when the reason no longer holds.
func (s *Supervisor) noteAttempt(i *instance, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := i.endFailure
	if err == nil {
		i.endFailure = ""
		if before != "" {
			s.publish(i, launcherapi.EventUpdated)
		}
		return
	}
	i.endFailure = fmt.Sprintf("its processes do not end, and the launcher keeps trying: %v", err)
	if before == "" {
		i.endFailureSince = time.Now()
	}
	if i.endFailure == before {
		i.notify()
		return
	}
	s.log.Error("cannot end a process tree", "instance", i.facts.ID, "state", i.state, "error", err)
	s.publish(i, launcherapi.EventUpdated)
}

// stuck returns an error if a caller has waited for the instance's end since that time
// while attempts failed for longer than stuckAfter. If stuck returns nil, the caller
// waits on. The lock is held.
func (i *instance) stuck(since time.Time) error {
	if i.endFailure == "" || min(time.Since(since), time.Since(i.endFailureSince)) < stuckAfter {
		return nil
	}
	e := launcher.EngineTimeoutf("instance %s is still %s: %s", i.facts.ID, i.state, i.endFailure)
	e.InstanceID = i.facts.ID
	return e
}
