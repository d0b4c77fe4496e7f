package supervisor

import (
	"context"
	"fmt"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has the waits for a change of an instance.

// lists says whether an instance is still listed: not forgotten, so that its id may
// already be another instance's. The lock is held.
func (s *Supervisor) lists(i *instance) bool { return s.instances[i.facts.ID] == i }

// find gives the instance of an id. The lock is held.
func (s *Supervisor) find(id string) (*instance, error) {
	i, ok := s.instances[id]
	if !ok {
		return nil, launcher.NotFound(id)
	}
	return i, nil
}

// await returns the instance as soon as done, which is called with the lock held,
// says so. The wait ends early when ctx does, or when the instance is forgotten
// (code not_found).
func (s *Supervisor) await(ctx context.Context, i *instance, done func() bool) (launcherapi.Instance, error) {
	for {
		s.mu.Lock()
		is := done()
		view, changed, forgotten := i.view(), i.changed, !s.lists(i)
		s.mu.Unlock()
		switch {
		case is:
			return view, nil
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

// awaitEnd is await for the end of an instance. When the tree cannot be ended for
// long, the error has code engine_timeout.
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

// atRest waits until an instance is at rest (not on its way to another state and,
// where it has ended, released) or forgotten. When an instance cannot be ended for
// long, the error has code engine_timeout.
func (s *Supervisor) atRest(ctx context.Context, i *instance) error {
	_, err := s.awaitEnd(ctx, i, func() bool {
		return !s.lists(i) || !i.state.Moving() && (i.released || !i.state.Ended())
	})
	return err
}

// AwaitRest waits until an instance is at rest (not on its way to another state
// and, where it has ended, released) or forgotten. When an instance cannot be ended
// for long, the error has code engine_timeout.
func (s *Supervisor) AwaitRest(ctx context.Context, id string) error {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return nil //nolint:nilerr // it is forgotten
	}
	return s.atRest(ctx, i)
}

// Await returns the instance as soon as done, which is called with the supervisor's
// lock held, says so. The wait ends early when ctx does, or when the instance is
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

// AwaitVerb waits until the instance has reached the wanted state. When the
// instance ends up in another state the error says why, with code engine_failed,
// engine_timeout or conflict. When ctx ends first the engine goes on.
func (s *Supervisor) AwaitVerb(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error) {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.awaitVerb(ctx, i, want)
}

func (s *Supervisor) awaitVerb(ctx context.Context, i *instance, want launcher.State) (launcherapi.Instance, error) {
	var failed error
	view, err := s.await(ctx, i, func() bool {
		if i.state.Moving() || !s.lists(i) {
			return false
		}
		failed = nil
		if i.state != want {
			failed = i.failure(want)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return view, err
}

// awaitForgotten waits until the instance is forgotten, and shows how it ended.
func (s *Supervisor) awaitForgotten(ctx context.Context, i *instance) (launcherapi.Instance, error) {
	view, err := s.awaitEnd(ctx, i, func() bool { return !s.lists(i) })
	switch {
	case err != nil && ctx.Err() != nil:
		return view, fmt.Errorf("instance %s is still %s: %w", i.facts.ID, view.State, err)
	case err != nil:
		return view, err
	}
	view.Status = launcherapi.StatusStopped
	if !launcher.State(view.State).Ended() { // no process was ever made
		view.State = string(launcher.Stopped)
	}
	return view, nil
}
