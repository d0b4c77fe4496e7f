package apitest

import (
	"context"
	"slices"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Swaps begins the run that Next has set, and records the request.
type Swaps struct {
	mu   sync.Mutex
	run  *SwapRun
	err  error
	reqs []launcherapi.SwapRequest
	keys []string
}

// Next sets what the next calls return.
func (f *Swaps) Next(run *SwapRun, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.err = run, err
}

// Requests lists the requests so far, and the idempotency keys and ids that calls came with.
func (f *Swaps) Requests() (reqs []launcherapi.SwapRequest, keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reqs), slices.Clone(f.keys)
}

// Begin records the request.
func (f *Swaps) Begin(req launcherapi.SwapRequest, key string) (launcher.SwapRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reqs, f.keys = append(f.reqs, req), append(f.keys, key)
	if f.err != nil {
		return nil, f.err
	}
	return f.run, nil
}

// CallOff records the key.
func (f *Swaps) CallOff(key string) (launcher.SwapRun, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys, key)
	if f.err != nil {
		return nil, f.err
	}
	return f.run, nil
}

// List returns the run that Next has set.
func (f *Swaps) List() []launcher.SwapRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil {
		return nil
	}
	return []launcher.SwapRun{f.run}
}

// Get records the id.
func (f *Swaps) Get(id string) (launcher.SwapRun, error) { return f.CallOff(id) }

// Cancel records the id.
func (f *Swaps) Cancel(id string) (launcher.SwapRun, error) { return f.CallOff(id) }

// Go records the id, after the name of the call.
func (f *Swaps) Go(id string) (launcher.SwapRun, error) { return f.CallOff("go " + id) }

// Commit records the id, after the name of the call.
func (f *Swaps) Commit(id string) (launcher.SwapRun, error) { return f.CallOff("commit " + id) }

// Undo records the id, after the name of the call.
func (f *Swaps) Undo(id string) (launcher.SwapRun, error) { return f.CallOff("undo " + id) }

// SwapRun is a swap whose steps the test sends; closing them ends it.
type SwapRun struct {
	Steps  chan launcherapi.SwapProgress
	Result launcherapi.SwapResult
	Err    error
	Left   chan struct{}    // closed when somebody stopped waiting before the end
	Now    launcherapi.Swap // what Show returns
}

// NewSwapRun makes a swap that goes on until its steps are closed.
func NewSwapRun(result launcherapi.SwapResult) *SwapRun {
	return &SwapRun{Steps: make(chan launcherapi.SwapProgress, 10), Result: result, Left: make(chan struct{})}
}

// Over makes a swap that is over, with that result and error.
func Over(result launcherapi.SwapResult, err error) *SwapRun {
	r := NewSwapRun(result)
	r.Err, r.Now = err, launcherapi.Swap{SwapID: result.SwapID, State: launcherapi.SwapOver, GPUUUIDs: []string{}}
	close(r.Steps)
	return r
}

// ID is the swap's.
func (r *SwapRun) ID() string { return r.Result.SwapID }

// Show returns Now, and the error of the swap if Now is over.
func (r *SwapRun) Show() (launcherapi.Swap, error) {
	if r.Now.State != launcherapi.SwapOver {
		return r.Now, nil
	}
	return r.Now, r.Err
}

// Follow tells each step.
func (r *SwapRun) Follow(ctx context.Context, tell func(launcherapi.SwapProgress) error) error {
	for {
		select {
		case p, more := <-r.Steps:
			if !more {
				return nil
			}
			if err := tell(p); err != nil {
				return err
			}
		case <-ctx.Done():
			close(r.Left)
			return context.Cause(ctx)
		}
	}
}

// Wait returns the result of the swap.
func (r *SwapRun) Wait(ctx context.Context) (launcherapi.SwapResult, error) {
	if err := r.Follow(ctx, func(launcherapi.SwapProgress) error { return nil }); err != nil {
		return launcherapi.SwapResult{}, err
	}
	return r.Result, r.Err
}
