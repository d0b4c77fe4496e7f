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

// Bounds of the time between two attempts to end or to adopt a process tree: an
// attempt may fail for a reason that goes away, such as a want of descriptors.
const (
	shortestRetry = 100 * time.Millisecond
	longestRetry  = 10 * time.Second
)

// attemptLimit bounds one attempt beyond its grace. When a process does not end in
// that time, since it hangs in a driver for example, the watchers are told, and the
// next attempt begins.
const attemptLimit = 30 * time.Second

// stuckAfter is how long callers wait for an end while attempts fail.
const stuckAfter = 10 * time.Second

// stopTree ends the whole tree and waits for its device memory.
func (s *Supervisor) stopTree(i *instance, grace time.Duration) {
	s.endTree(i, grace, func(ctx context.Context) error {
		if i.tree == nil { // no process was made: the instance still waited to be started
			return s.opts.Runner.Clear(ctx, i.facts.ID)
		}
		return i.tree.Stop(ctx, grace)
	})
}

// clearTree kills the processes that the API server left behind when it ended.
func (s *Supervisor) clearTree(i *instance) {
	s.endTree(i, 0, func(ctx context.Context) error {
		if i.tree == nil {
			return s.opts.Runner.Clear(ctx, i.facts.ID)
		}
		return i.tree.Kill(ctx)
	})
}

// endTree tries until the tree is gone: only then are the instance's memory and
// ports free.
func (s *Supervisor) endTree(i *instance, grace time.Duration, end func(context.Context) error) {
	held, gone := s.untilGone(i, grace, end)
	if !gone {
		return // the launcher is ending
	}
	late := s.meter.AwaitReturned(s.ctx, held)
	if i.tree != nil {
		<-i.exitTold // the exit of the root, which has the exit code, is handled before the end of the tree
	}
	if s.ctx.Err() != nil {
		return
	}
	crashpoint.At(crashpoint.StopGone)
	s.onGone(i, late)
}

// untilGone tries until the tree is gone, and gives the processes that held its
// device memory. gone is false when the launcher ends first.
func (s *Supervisor) untilGone(i *instance, grace time.Duration, end func(context.Context) error) (held map[string][]int, gone bool) {
	held = map[string][]int{}
	for wait := shortestRetry; ; wait = min(2*wait, longestRetry) {
		maps.Copy(held, s.meter.Holders(i.facts.ID, i.gpus()))
		ctx, cancel := context.WithTimeout(s.ctx, grace+attemptLimit)
		err := end(ctx)
		cancel()
		if s.ctx.Err() != nil {
			return nil, false
		}
		s.noteAttempt(i, err)
		if err == nil {
			return held, true
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return nil, false
		}
	}
}

// noteAttempt notes why the tree of an instance could not be ended; nil: the tree
// is gone. The watchers hear each reason once, and that the last one holds no more.
func (s *Supervisor) noteAttempt(i *instance, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := i.unended
	if err == nil {
		i.unended = ""
		if before != "" {
			s.publish(i, launcherapi.EventUpdated)
		}
		return
	}
	i.unended = fmt.Sprintf("it could not be ended yet, and the launcher goes on trying: %v", err)
	if before == "" {
		i.unendedSince = time.Now()
	}
	if i.unended == before {
		i.notify()
		return
	}
	s.log.Error("cannot end a process tree", "instance", i.facts.ID, "state", i.state, "error", err)
	s.publish(i, launcherapi.EventUpdated)
}

// stuck is the error for a caller that has waited since that time for the
// instance's end, while attempts failed for longer than stuckAfter; nil: the caller
// should wait on. The lock is held.
func (i *instance) stuck(since time.Time) error {
	if i.unended == "" || min(time.Since(since), time.Since(i.unendedSince)) < stuckAfter {
		return nil
	}
	e := launcher.EngineTimeoutf("instance %s is still %s: %s", i.facts.ID, i.state, i.unended)
	e.InstanceID = i.facts.ID
	return e
}
