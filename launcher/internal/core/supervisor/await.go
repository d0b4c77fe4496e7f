package supervisor

import (
	"context"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file waits for changes of an instance.

// isListed reports whether an instance is listed. If not, the instance is forgotten,
// and its id may already be another instance's. The lock is held.
func (s *Supervisor) isListed(i *instance) bool { return s.instances[i.facts.ID] == i }

// find returns the instance with that id. The lock is held.
func (s *Supervisor) find(id string) (*instance, error) {
	i, ok := s.instances[id]
	if !ok {
		return nil, launcher.NotFound(id)
	}
	return i, nil
}

// await waits until done returns true and what is so is recorded, and returns the instance.
// It calls done with the lock held. The wait ends early if ctx ends, or if the instance is
// forgotten (code not_found).
func (s *Supervisor) await(ctx context.Context, i *instance, done func() bool) (launcherapi.Instance, error) {
	settled, recorded := false, uint64(0)
	for {
		s.mu.Lock()
		is := done()
		view, changed, forgotten := i.view(), i.changed, !s.isListed(i)
		s.mu.Unlock()
		switch {
		case is && settled && recorded == view.Revision:
			return view, nil
		case is: // the disk may take its time, and the instance may change meanwhile
			s.settle()
			settled, recorded = true, view.Revision
			continue
		case forgotten:
			return view, launcher.NotFound(i.facts.ID)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return view, context.Cause(ctx)
		}
	}
}

// awaitEnd is await for the end of an instance. If attempts to end the tree fail for
// longer than stuckAfter, the error has code engine_timeout.
func (s *Supervisor) awaitEnd(ctx context.Context, i *instance, done func() bool) (launcherapi.Instance, error) {
	began := time.Now()
	var stuck error
	view, err := s.await(ctx, i, func() bool {
		if done() {
			stuck = nil
			return true
		}
		stuck = i.stuck(began)
		return stuck != nil
	})
	if err == nil {
		err = stuck
	}
	return view, err
}

// awaitRest waits until an instance is at rest or forgotten. At rest means that the
// instance is not changing its state and, if it has ended, is released. The error of
// an instance that cannot be ended has code engine_timeout.
func (s *Supervisor) awaitRest(ctx context.Context, i *instance) error {
	_, err := s.awaitEnd(ctx, i, func() bool {
		return !s.isListed(i) || !i.state.Moving() && (i.released || !i.state.Ended())
	})
	return err
}

// AwaitRest waits until an instance is at rest or forgotten. At rest means that the
// instance is not changing its state and, if it has ended, is released. The error of
// an instance that cannot be ended has code engine_timeout.
func (s *Supervisor) AwaitRest(ctx context.Context, id string) error {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return nil //nolint:nilerr // it is forgotten
	}
	return s.awaitRest(ctx, i)
}

// Await waits until done returns true, and returns the instance. It calls done with the
// supervisor's lock held. The wait ends early if ctx ends, or if the instance is
// forgotten (code not_found).
func (s *Supervisor) Await(ctx context.Context, id string, done func(launcherapi.Instance) bool) (launcherapi.Instance, error) {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.await(ctx, i, func() bool { return done(i.view()) })
}

// AwaitState waits until the instance has reached the wanted state. If the instance
// comes to rest in another state, the error says why, with code engine_failed,
// engine_timeout or conflict. If ctx ends first, the engine goes on.
func (s *Supervisor) AwaitState(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error) {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.awaitState(ctx, i, want)
}

func (s *Supervisor) awaitState(ctx context.Context, i *instance, want launcher.State) (launcherapi.Instance, error) {
	var failed error
	view, err := s.await(ctx, i, func() bool {
		if i.state.Moving() || !s.isListed(i) {
			return false
		}
		failed = nil
		if i.state != want {
			failed = i.stateError(want)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return view, err
}

// awaitForgotten waits until the instance is forgotten, and returns how it ended.
func (s *Supervisor) awaitForgotten(ctx context.Context, i *instance) (launcherapi.Instance, error) {
	view, err := s.awaitEnd(ctx, i, func() bool { return !s.isListed(i) })
	switch {
	case err != nil && ctx.Err() != nil:
		return view, fmt.Errorf("instance %s is still %s: %w", i.facts.ID, view.State, err)
	case err != nil:
		return view, err
	}
	view.Status = launcherapi.StatusStopped
	if !launcher.State(view.State).Ended() { // its process was never started
		view.State = string(launcher.Stopped)
	}
	return view, nil
}
