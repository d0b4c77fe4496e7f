package simulation

import (
	"context"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// checkWaiting checks that a swap that waits has something to wait for: an instance
// on its way, a swap under way, or one that is awake too short a time.
func (w *world) checkWaiting(all []launcherapi.Instance) {
	w.mu.Lock()
	var waiting []*request
	for _, r := range w.requests {
		if r.open && r.isSwap() && r.l == w.life && time.Since(r.began) > grace && time.Since(w.life.born) > grace {
			waiting = append(waiting, r)
		}
	}
	w.mu.Unlock()
	if len(waiting) == 0 || w.swaps() || w.busy(all) {
		w.idle = time.Time{}
		return
	}
	if w.idle.IsZero() {
		w.idle = time.Now()
	}
	if time.Since(w.idle) > 2*time.Second+w.recordTime()+w.driverTime() {
		w.idle = time.Now().Add(time.Hour)
		w.m.wrong(nobodyWaitsForNought, "%s waits, and nothing is under way", waiting[0].step)
	}
}

// driverTime bounds how long a swap whose turn has come waits for the driver of a GPU that hangs:
// package gpu gives a call that time.
func (w *world) driverTime() time.Duration {
	if !w.everWrong("driver hangs") {
		return 0
	}
	return 3 * time.Second
}

// swaps says whether a swap is under way: its admission is over, and it is not. Its instance may
// be gone by then, and its room given back, while it records its undo on a disk that stalls.
func (w *world) swaps() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, stop := context.WithCancel(context.Background())
	stop()
	return slices.ContainsFunc(w.requests, func(r *request) bool {
		if r.run == nil || r.l != w.life {
			return false
		}
		admitted := false
		over := r.run.Follow(now, func(p launcherapi.SwapProgress) error { // what has happened until now
			admitted = admitted || p.Phase != launcherapi.PhaseAdmit || p.Type == launcherapi.ProgressDone
			return nil
		}) == nil
		return admitted && !over
	})
}

// busy says whether there is anything that a swap may wait for.
func (w *world) busy(all []launcherapi.Instance) bool {
	for _, i := range all {
		state := launcher.State(i.State)
		if state.Moving() || i.SwapID != "" || state.Ended() && (i.Port != 0 || w.holds(i.PID)) {
			return true
		}
		if age := time.Since(i.StateSince); state == launcher.Awake && age > -leeway && age < w.budget.MinResidency.D() {
			return true
		}
	}
	for _, g := range w.life.sup.GPUs().GPUs {
		if g.ReservedBytes > 0 {
			return true
		}
	}
	return false
}

// holds says whether device memory of a process has not come back yet.
func (w *world) holds(pid int) bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	p := w.m.procs[pid]
	return p != nil && len(p.held) > 0
}
