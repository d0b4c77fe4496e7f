package simulation

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// checkEndings checks that whoever the launcher ended, and that was well, was to end.
func (w *world) checkEndings() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.ends {
		tooLate := !e.began && e.at.Sub(w.startOf(e.p)) >= limits.Start && (e.at.Sub(e.p.birth) < limits.Start+leeway || e.p.lost > 0) // it was ready when its time was over
		if !e.p.troubled && !e.moves && !e.blind && !tooLate && !w.deletedAt(e) && !w.madeByAFailure(e.p) && (e.level == 0 || !w.stoppedAsItLeft(e) && (e.woken || !w.mayGoAsleep(e))) {
			w.m.wrong(nobodyEndsUnasked, "%s, made for %s, was ended after %s while it slept at level %d",
				e.p.name, e.p.model, e.at.Sub(w.began), e.level)
		}
	}
}

// startOf is when the start of a process began: its preloader may have let it wait for half of
// the time of a start. The lock is held.
func (w *world) startOf(p *proc) time.Time {
	began := p.birth
	for _, r := range w.requests {
		if r.request == p.model && r.began.Before(began) && p.birth.Sub(r.began) <= limits.Start/2 {
			began = r.began
		}
	}
	return began
}

// deletedAt says whether a client asked for that end. The lock is held.
func (w *world) deletedAt(e ending) bool {
	return slices.ContainsFunc(w.requests, func(r *request) bool {
		return (r.what == "delete all" || r.what == "delete" && r.id == e.p.name) && !r.began.After(e.at) && !r.began.Before(e.p.birth)
	})
}

// madeByAFailure says whether a process was made for a swap that was not done, as
// far as its client knows. The lock is held.
func (w *world) madeByAFailure(p *proc) bool {
	for _, r := range w.requests {
		again := r.what == "swap in sleeping" && r.id == p.name && w.wasStartedAgain(p)
		if r.request == p.model && r.isSwap() || again {
			done := slices.ContainsFunc(r.answers, func(a answer) bool { return a.result.Outcome == launcherapi.OutcomeDone })
			if !done || w.damaged["a swap"] { // its client may have asked again, and nobody knew of the first time
				return true
			}
		}
	}
	return false
}

// wasStartedAgain says whether a swap started an instance again that had failed: its process
// is not the first of that name for that request, or the launcher died at or after the request and
// before it had made one. The lock is held.
func (w *world) wasStartedAgain(p *proc) bool {
	if slices.ContainsFunc(w.requests, func(r *request) bool {
		return r.request == p.model && r.id == p.name && slices.ContainsFunc(w.died, func(at time.Time) bool { return !at.Before(r.first) && at.Before(p.birth) })
	}) {
		return true
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, other := range w.m.procs {
		if other.name == p.name && other.model == p.model && other.pid < p.pid {
			return true
		}
	}
	return false
}

// stoppedAsItLeft says whether one that sleeps was stopped by the swap that it left
// for, whoever waited for it to wake. The lock is held.
func (w *world) stoppedAsItLeft(e ending) bool {
	return slices.ContainsFunc(w.requests, func(r *request) bool {
		return r.isSwap() && r.out == launcherapi.OutStop && slices.ContainsFunc(r.answers, func(a answer) bool {
			return slices.ContainsFunc(a.result.Out, func(i launcherapi.Instance) bool { return i.InstanceID == e.p.name })
		})
	})
}

// mayGoAsleep says whether one that sleeps may have been evicted, or ended by a swap
// of which nobody knows what it came to. The lock is held.
func (w *world) mayGoAsleep(e ending) bool {
	if w.everBudgeted(func(b launcherapi.Budget) bool {
		return b.MaxSleepersPerGPU > 0 || b.MaxHostSleeperBytes > 0 || b.MaxInstances > 0
	}) {
		return true
	}
	for _, r := range w.requests {
		if !r.isSwap() {
			continue
		}
		if len(r.answers) == 0 || r.cut || r.left || w.deaths > 0 {
			return true // nobody knows what it came to
		}
		for _, a := range r.answers {
			if slices.Contains(a.result.Evicted, e.p.name) {
				return true
			}
		}
	}
	return false
}
