package swap

import (
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file shows the swaps that the coordinator remembers.

// maxLate is the number of swaps without a key that are remembered once they are over.
const maxLate = 100

// List returns the swaps that the coordinator remembers, oldest first.
func (c *Coordinator) List() []*Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.late)
	for _, r := range c.runs {
		all = append(all, r)
	}
	for _, k := range c.keys {
		if k.saved.Done && c.runs[k.saved.Plan.SwapID] == nil {
			all = append(all, c.finishedRun(k.saved))
		}
	}
	slices.SortStableFunc(all, func(a, b *Run) int { return a.shown.BeganAt.Compare(b.shown.BeganAt) }) // BeganAt never changes
	return all
}

// Get returns the swap with that id. The error has the code not_found if there is none.
func (c *Coordinator) Get(id string) (*Run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.runs[id]; r != nil {
		return r, nil
	}
	if at := slices.IndexFunc(c.late, func(r *Run) bool { return r.id == id }); at >= 0 {
		return c.late[at], nil
	}
	for _, k := range c.keys {
		if k.saved.Done && k.saved.Plan.SwapID == id {
			return c.finishedRun(k.saved), nil
		}
	}
	return nil, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "no swap has the id " + id + ", or the launcher has forgotten it"}
}

// retire is called once a swap is answered. A swap with a key is remembered by its key.
func (c *Coordinator) retire(r *Run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[r.id] != r {
		return
	}
	delete(c.runs, r.id)
	if r.saved.Key != nil {
		return
	}
	r.mu.Lock()
	over := &Run{c: c, id: r.id, began: r.began, progress: r.progress, changed: r.changed, ended: r.ended, answered: true, shown: r.shown, result: r.result, err: r.err} // without the claim and the draft
	r.mu.Unlock()
	if c.late = append(c.late, over); len(c.late) > maxLate {
		c.late = slices.Delete(c.late, 0, 1)
	}
}

// shownOf returns what Show returns of a swap that is not over.
func shownOf(saved Saved) launcherapi.Swap {
	return launcherapi.Swap{
		SwapID: saved.Plan.SwapID, GPUUUIDs: slices.Concat([]string{}, saved.Plan.GPUs), InstanceID: saved.Plan.In,
		Phase: saved.Phase, BeganAt: saved.Began.UTC(), Deadline: saved.Plan.Until.UTC(),
	}
}

// Show returns the swap as it is now, and the error of one that has failed.
func (r *Run) Show() (launcherapi.Swap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.shown
	switch {
	case r.answered:
		now.State, now.Phase = launcherapi.SwapOver, ""
		if r.err == nil {
			result := r.result
			now.Result = &result
		}
		return now, r.err
	case r.begun:
		now.State = launcherapi.SwapRunning
	default:
		now.State = launcherapi.SwapWaiting
	}
	return now, nil
}

// showPlan has Show return the GPUs and the instance of the plan as it is now.
func (r *Run) showPlan() {
	now := shownOf(r.saved)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown.GPUUUIDs, r.shown.InstanceID = now.GPUUUIDs, now.InstanceID
}

func (r *Run) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered
}
