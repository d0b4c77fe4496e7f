package swap

import (
	"slices"

	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file is what is written down of swaps.

// save writes the swap down: from here on it is finished or undone, whatever
// happens to the launcher.
func (r *Run) save() error {
	r.saved.GPUs, r.saved.In, r.saved.New, r.saved.Out = r.order.held, r.intent.In, r.intent.New, r.intent.Out
	r.saved.Stays, r.saved.Stop, r.saved.Level, r.saved.Until = r.intent.Want == nil, r.intent.Stop, r.intent.Level, r.until
	err := r.rewrite(func(*supervisor.SavedSwap) {})
	r.written = err == nil
	if err != nil { // it will not be begun
		r.c.drop(r.saved.ID)
	}
	return err
}

// rewrite changes what is written down of the swap.
func (r *Run) rewrite(change func(*supervisor.SavedSwap)) error {
	r.c.mu.Lock()
	change(&r.saved)
	saved := r.saved
	r.c.put(saved)
	r.c.mu.Unlock()
	return r.c.opts.Supervisor.WriteSwap(saved)
}

// writeEnd writes down that the swap is over, and what it came to when it has a
// key.
func (r *Run) writeEnd() {
	if !r.written && r.saved.Key == nil {
		return
	}
	r.mu.Lock()
	result, err := r.result, r.err
	r.mu.Unlock()
	r.c.mu.Lock()
	r.saved.Done = true
	if r.saved.Key != nil {
		r.saved.Result, r.saved.Failure = &result, savedFailure(asFailed(err))
		bound(&r.saved)
		r.c.remember(&kept{saved: r.saved})
	}
	saved := r.saved
	r.c.mu.Unlock()
	r.c.drop(saved.ID)
	if err := r.c.opts.Supervisor.WriteSwap(saved); err != nil {
		r.c.log.Error("cannot write down that a swap is over", "swap", saved.ID, "error", err)
	}
}

// phaseOf is the phase that a swap is in by what is written of it.
func phaseOf(saved supervisor.SavedSwap) string {
	if saved.Phase == "" {
		return launcherapi.PhaseAdmit
	}
	return saved.Phase
}

// put notes a swap that runs. The lock is held.
func (c *Coordinator) put(saved supervisor.SavedSwap) {
	at := slices.IndexFunc(c.saved, func(s supervisor.SavedSwap) bool { return s.ID == saved.ID })
	if at < 0 {
		c.saved = append(c.saved, saved)
		return
	}
	c.saved[at] = saved
}

// drop forgets a swap that runs no more.
func (c *Coordinator) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = slices.DeleteFunc(c.saved, func(s supervisor.SavedSwap) bool { return s.ID == id })
}
