package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	lookPause = frameTime       // the shortest time from one look to the next
	lookEvery = time.Second     // the longest: no stream tells of requests and memory
	lookLimit = 5 * time.Second // for one look, and the pause before the next attempt to watch
	listEvery = 5 * time.Second // the longest time from one list of the swaps to the next: no event tells of those that are refused
)

// picture is what one look at the launcher has seen.
type picture struct {
	server    string
	gpus      []launcherapi.GPU
	instances []launcherapi.Instance
	door      *launcherapi.FrontDoor // nil: there is none
	swaps     []launcherapi.Swap
	phases    map[string][]launcherapi.PhaseTime // the phases that are over, by swap

	lost      error // why the launcher has not answered since; nil: it has
	lostSince time.Time
}

// looker looks at a launcher, and follows its swaps.
type looker struct {
	cl     *client.Client
	server string
	bell   chan struct{} // something has changed

	// Swaps are listed when there may be news of them: the launcher remembers up to 1,100.
	swaps   []launcherapi.Swap // as they were listed last; look alone uses both
	listed  time.Time
	swapped atomic.Bool // an event since has told of a swap

	mu     sync.Mutex
	phases map[string][]launcherapi.PhaseTime // of each swap that is followed, by id
}

func newLooker(cl *client.Client, server string) *looker {
	return &looker{cl: cl, server: server, bell: make(chan struct{}, 1), phases: map[string][]launcherapi.PhaseTime{}}
}

func (l *looker) ring() {
	select {
	case l.bell <- struct{}{}:
	default: // it has not been heard yet
	}
}

// look asks the launcher for all that there is to show.
func (l *looker) look(ctx context.Context) (p picture, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	list, err := l.cl.List(ctx)
	if err != nil {
		return p, err
	}
	gpus, err := l.cl.GPUs(ctx)
	if err != nil {
		return p, err
	}
	if l.mayHaveSwaps(gpus) {
		now := time.Now()
		swaps, err := l.cl.Swaps(ctx)
		if err != nil {
			return p, err
		}
		l.swaps, l.listed = swaps.Swaps, now
	}
	p = picture{server: l.server, instances: list.Instances, gpus: gpus.GPUs, swaps: current(l.swaps, time.Now())}
	door, err := l.cl.FrontDoor(ctx)
	switch {
	case err == nil:
		p.door = &door
	case !client.IsNotFound(err):
		return p, err
	}
	return p, nil
}

// mayHaveSwaps reports whether the list of swaps may have changed since it was read.
func (l *looker) mayHaveSwaps(gpus launcherapi.GPUList) bool {
	told := l.swapped.Swap(false)
	goesOn := func(s launcherapi.Swap) bool { return s.State != launcherapi.SwapOver }
	return told || gpus.QueuedSwaps+gpus.ActiveSwaps > 0 || slices.ContainsFunc(l.swaps, goesOn) || time.Since(l.listed) >= listEvery
}

// run sends each new look at the launcher until ctx ends; latest is the first one.
func (l *looker) run(ctx context.Context, latest picture, into chan<- picture) {
	var streams sync.WaitGroup
	defer streams.Wait()
	streams.Go(func() { l.watch(ctx) })
	for pause(ctx, lookPause, nil) && pause(ctx, lookEvery-lookPause, l.bell) {
		next, err := l.look(ctx)
		if err != nil {
			next = latest
			next.lost = err
			if latest.lost == nil {
				next.lostSince = time.Now()
			}
		} else {
			l.follow(ctx, &streams, next.swaps)
			next.phases = l.seen()
		}
		latest = next
		select {
		case into <- latest:
		case <-ctx.Done():
		}
	}
}

// pause waits for a time, or for the bell, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration, bell <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-bell:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// watch rings at each event of the instances.
func (l *looker) watch(ctx context.Context) {
	for {
		for event, err := range l.cl.Watch(ctx, nil) {
			if err != nil {
				break // the looks say what is wrong
			}
			if event.Object.SwapID != "" {
				l.swapped.Store(true)
			}
			l.ring()
		}
		if !pause(ctx, lookLimit, nil) {
			return
		}
	}
}

// follow begins to follow the swaps that have begun, and forgets those that are no longer shown.
func (l *looker) follow(ctx context.Context, streams *sync.WaitGroup, swaps []launcherapi.Swap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.phases
	l.phases = map[string][]launcherapi.PhaseTime{}
	for _, s := range swaps {
		if s.State == launcherapi.SwapWaiting {
			continue
		}
		phases, known := before[s.SwapID]
		l.phases[s.SwapID] = phases
		if !known {
			streams.Go(func() { l.followSwap(ctx, s.SwapID) })
		}
	}
}

// followSwap keeps the phases of a swap as they end. A swap whose stream breaks off is followed
// again after a later look.
func (l *looker) followSwap(ctx context.Context, id string) {
	var over []launcherapi.PhaseTime
	_, err := l.cl.FollowSwap(ctx, id, func(step launcherapi.SwapProgress) {
		if step.Type == launcherapi.ProgressDone {
			over = append(over, launcherapi.PhaseTime{Name: step.Phase, InstanceID: step.InstanceID, DurationMS: step.DurationMS})
			l.keep(id, over)
		}
		l.ring()
	})
	if _, answered := errors.AsType[*launcher.Error](err); err != nil && !answered {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.phases, id)
	}
}

// keep keeps the phases of a swap that is still shown.
func (l *looker) keep(id string, over []launcherapi.PhaseTime) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, shown := l.phases[id]; shown {
		l.phases[id] = over[:len(over):len(over)]
	}
}

// seen gives the phases so far.
func (l *looker) seen() map[string][]launcherapi.PhaseTime {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.phases)
}
