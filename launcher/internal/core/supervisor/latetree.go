package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// lateTree is the Tree of a recovered instance that could not be adopted at once. Either
// the root has ended, and only the processes that it left are to be cleared. Or the
// adoption failed for another reason and is retried while the instance keeps its state.
type lateTree struct {
	runner  Runner
	name    string
	id      process.ID
	adopted chan struct{} // closed once inner is known
	inner   Tree          // nil: the root has ended
	done    chan struct{} // closed once exit is known
	exit    process.Exit
}

func newLateTree(runner Runner, name string, id process.ID) *lateTree {
	return &lateTree{runner: runner, name: name, id: id, adopted: make(chan struct{}), done: make(chan struct{})}
}

// leftoverTree returns the tree of the processes that an ended root has left.
func leftoverTree(runner Runner, name string, exit process.Exit) *lateTree {
	t := newLateTree(runner, name, process.ID{})
	t.ended(exit)
	return t
}

func (t *lateTree) ended(exit process.Exit) {
	t.exit = exit
	close(t.adopted)
	close(t.done)
}

func (t *lateTree) Done() <-chan struct{} { return t.done }

func (t *lateTree) ID() process.ID {
	select {
	case <-t.adopted:
		if t.inner != nil {
			return t.inner.ID()
		}
	default:
	}
	return t.id
}

func (t *lateTree) Exit() process.Exit {
	select {
	case <-t.done:
		return t.exit
	default:
		return process.Exit{}
	}
}

func (t *lateTree) Pids() []int {
	select {
	case <-t.adopted:
	default:
		return []int{t.id.PID}
	}
	if t.inner == nil {
		return nil
	}
	return t.inner.Pids()
}

// Stop ends the tree once it is adopted, or clears the processes that its root left.
func (t *lateTree) Stop(ctx context.Context, grace time.Duration) error {
	return t.end(ctx, func() error { return t.inner.Stop(ctx, grace) })
}

// Kill is Stop without a grace.
func (t *lateTree) Kill(ctx context.Context) error {
	return t.end(ctx, func() error { return t.inner.Kill(ctx) })
}

func (t *lateTree) end(ctx context.Context, adopted func() error) error {
	select {
	case <-t.adopted:
	case <-ctx.Done():
		return fmt.Errorf("cannot end %q, which the launcher has not adopted yet: %w", t.name, ctx.Err())
	}
	if t.inner != nil {
		return adopted()
	}
	return t.runner.Clear(ctx, t.name)
}

// retry calls do until it succeeds, with a back-off: do may fail for a reason that goes
// away, such as a lack of file descriptors. If ctx ends first, retry returns the last
// error.
func retry(ctx context.Context, do func() error) error {
	wait := shortestRetry
	for {
		err := do()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		wait = min(2*wait, longestRetry)
	}
}

// adoptLater retries in the background to adopt the root of an instance, until it knows
// whether the root lives. It then waits for the root's exit. The lock is held.
func (s *Supervisor) adoptLater(i *instance, late *lateTree, why error) {
	s.log.Error("cannot adopt an instance, which may be alive; trying again", "instance", late.name, "pid", late.id.PID, "error", why)
	said := fmt.Sprintf("the launcher cannot adopt it, so that it would miss its end (%v); it tries again", why)
	i.reason = join(i.reason, said)
	s.spawn(func() {
		err := retry(s.ctx, func() (err error) {
			late.inner, err = s.opts.Runner.Adopt(late.name, late.id)
			if gone, ok := errors.AsType[*process.GoneError](err); ok {
				late.inner, err = nil, nil
				late.exit = gone.Exit
			}
			return err
		})
		if err != nil {
			return // the launcher is ending
		}
		if late.inner != nil {
			s.readSecretsLate(i)
		}
		close(late.adopted)
		s.onAdopted(i, late.ID(), said)
		if late.inner != nil {
			select {
			case <-late.inner.Done():
				late.exit = late.inner.Exit()
			case <-s.ctx.Done():
				return
			}
		}
		close(late.done)
	})
}

// readSecretsLate is readSecrets for an instance that is already listed. The fault
// that prevented the adoption of the process may have prevented the reading of its secrets too.
func (s *Supervisor) readSecretsLate(i *instance) {
	s.mu.Lock()
	read := &instance{facts: i.facts, engine: i.engine, root: i.root}
	s.mu.Unlock()
	s.readSecrets(read)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.apiKey, i.keyForgotten, i.secrets = read.apiKey, read.keyForgotten, read.secrets
}

// onAdopted removes from the instance's reason that it is not adopted: its root is
// adopted, or known to have ended. The id of a root that hung when it was found is
// complete by now.
func (s *Supervisor) onAdopted(i *instance, root process.ID, said string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.root = root
	before, ok := strings.CutSuffix(i.reason, said)
	if !ok || i.state.Ended() {
		return
	}
	i.reason = strings.TrimSuffix(before, "; ")
	s.publish(i, launcherapi.EventUpdated)
	s.log.Info("adopted an instance", "instance", i.facts.ID, "state", i.state, "pid", i.root.PID)
}

// clearLeftovers ends in the background the processes that may be left of an instance
// that has ended. Until they are gone, the ledger charges the instance. The lock is held.
func (s *Supervisor) clearLeftovers(i *instance) {
	i.tree = leftoverTree(s.opts.Runner, i.facts.ID, process.Exit{})
	s.spawn(func() {
		if _, gone := s.endUntilGone(s.ctx, i, 0, i.tree.Kill); gone {
			s.unlease(i.facts.ID, i, nil)
			s.onReleased(i)
		}
	})
}
