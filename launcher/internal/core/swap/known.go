package swap

import (
	"cmp"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file shows the swaps that the coordinator remembers.

// maxFinished is the number of swaps that are remembered with their phases once they are over.
// Older ones are remembered by their keys only.
const maxFinished = 100

// List returns the swaps that the coordinator remembers, oldest first.
func (c *Coordinator) List() []*Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.finished)
	for _, r := range c.runs {
		all = append(all, r)
	}
	known := map[string]bool{}
	for _, r := range all {
		known[r.id] = true
	}
	for _, k := range c.keys {
		if k.saved.Done && !known[k.saved.Plan.SwapID] {
			all = append(all, c.finishedRun(k.saved))
		}
	}
	slices.SortFunc(all, func(a, b *Run) int { // BeganAt never changes
		return cmp.Or(a.view.BeganAt.Compare(b.view.BeganAt), strings.Compare(a.id, b.id))
	})
	return all
}

// Get returns the swap with that id. The error has the code not_found if there is none.
func (c *Coordinator) Get(id string) (*Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.runs[id]; r != nil {
		return r, nil
	}
	if at := slices.IndexFunc(c.finished, func(r *Run) bool { return r.id == id }); at >= 0 {
		return c.finished[at], nil
	}
	for _, k := range c.keys {
		if k.saved.Done && k.saved.Plan.SwapID == id {
			return c.finishedRun(k.saved), nil
		}
	}
	return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap has the id " + id + ", or the launcher has forgotten it"}
}

// end is called when the swap does nothing any more: an undo that took longer than the answer
// has ended, too.
func (r *Run) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.finish()
	r.c.retire(r)
}

// retire moves a swap that is over to the finished ones, without its claim and its draft. A dry
// run that has no key is forgotten.
func (c *Coordinator) retire(r *Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, r.id)
	if r.req.DryRun && r.saved.Key == nil {
		return
	}
	if c.finished = append(c.finished, r.withoutClaim()); len(c.finished) > maxFinished {
		c.finished = slices.Delete(c.finished, 0, 1)
	}
}

// withoutClaim returns a Run with the progress and the result of one that is over. A large
// result is truncated. The lock of the coordinator is held.
func (r *Run) withoutClaim() *Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	saved, result := r.saved, r.result
	saved.Result, saved.Failure = &result, savedFailure(asFailed(r.err))
	truncateResult(&saved)
	out := r.c.finishedRun(saved)
	phases := slices.DeleteFunc(slices.Clone(r.progress), func(p launcherapi.SwapProgress) bool { return p.Result != nil })
	out.view, out.cancelled, out.progress = r.view, r.cancelled, slices.Concat(phases, out.progress)
	return out
}

// viewOf returns what Show returns of a swap that is not over, but for its state.
func viewOf(saved Saved) launcherapi.Swap {
	return launcherapi.Swap{
		SwapID: saved.Plan.SwapID, GPUUUIDs: slices.Concat([]string{}, saved.Plan.GPUs), InstanceID: saved.Plan.In,
		Phase: saved.Phase, BeganAt: saved.Began.UTC(), Deadline: saved.Plan.Until.UTC(),
	}
}

// Show returns the swap as it is now, and the error of one that has failed. A swap whose undo
// takes longer than its answer is running, and has the error.
func (r *Run) Show() (launcherapi.Swap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.view
	switch {
	case r.answered && r.over:
		now.State, now.Phase = launcherapi.SwapOver, ""
		if r.err == nil {
			result := r.result
			now.Result = &result
		}
		return now, r.err
	case r.answered:
		now.State = launcherapi.SwapRunning
		return now, r.err
	case r.begun:
		now.State = launcherapi.SwapRunning
	default:
		now.State = launcherapi.SwapWaiting
	}
	return now, nil
}

// updateView updates the GPUs and the instance that Show returns.
func (r *Run) updateView(gpus []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view.GPUUUIDs, r.view.InstanceID = slices.Clone(gpus), r.saved.Plan.In
}
