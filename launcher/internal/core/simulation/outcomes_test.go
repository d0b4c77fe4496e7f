package simulation

import (
	"errors"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// answerIsTrue checks what a client was told, at the moment when it was told.
func (w *world) answerIsTrue(r *request, l *life, a answer) {
	switch {
	case r.isSwap():
		w.swapIsTrue(r, l, a)
	case a.err != nil:
	case r.what == "create":
	case r.what == "sleep" || r.what == "wake":
		if p := w.process(r.id); p != nil && !p.troubled && (p.level > 0) != (r.what == "sleep") {
			w.m.wrong(doneIsTrue, "%s is answered, and the engine is at level %d", r.step, p.level)
		}
	default:
		w.m.mu.Lock()
		defer w.m.mu.Unlock()
		for _, p := range w.m.living() {
			if (r.id == "" || p.name == r.id) && p.birth.Before(r.began) {
				w.m.violated(doneIsTrue, "%s is answered, and a process of %s lives", r.step, p.name)
			}
		}
	}
}

// process is a copy of the living process of an instance; nil: there is none.
func (w *world) process(id string) *proc {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.living() {
		if p.name == id {
			seen := *p
			return &seen
		}
	}
	return nil
}

// swapIsTrue checks the answer to a swap. A key may be answered long after its swap:
// then the world may be another.
func (w *world) swapIsTrue(r *request, l *life, a answer) {
	if !a.result.BeganAt.IsZero() && time.Since(a.ended()).Abs() > time.Millisecond {
		return
	}
	w.halvesAreTrue(r, a)
	switch a.result.Outcome {
	case launcherapi.OutcomeDone, launcherapi.OutcomeNoop:
		w.doneIsTrue(r, a)
	case launcherapi.OutcomeRefused:
		w.refusedIsTrue(r, l, a)
	case launcherapi.OutcomeUndone:
		w.undoneIsTrue(r, a)
		w.failureIsTrue(r, a)
	case launcherapi.OutcomeUndoFailed:
		w.failureIsTrue(r, a)
		w.undoFailedIsTrue(r, a)
	case launcherapi.OutcomeInterrupted:
		if !l.isClosing() && !w.everWrong("disk full") && !w.everWrong("disk stalls") {
			w.m.wrong(refusedIsTrue, "%s was interrupted, by nobody", r.step)
		}
	}
}

// doneIsTrue: who came in is awake, who left is asleep or gone.
func (w *world) doneIsTrue(r *request, a answer) {
	if a.result.In != nil {
		in := a.result.In.InstanceID
		switch p := w.process(in); {
		case p == nil && !w.wasTroubled(in) && !w.wasDeleted(in):
			w.m.wrong(doneIsTrue, "%s is %s, and %s has no process", r.step, a.result.Outcome, in)
		case p != nil && !p.troubled && (p.level > 0 || !p.ready):
			w.m.wrong(doneIsTrue, "%s is %s, and %s is not awake", r.step, a.result.Outcome, in)
		}
	}
	for _, out := range a.result.Out {
		p := w.process(out.InstanceID)
		switch {
		case p == nil || p.troubled || p.birth.After(a.result.BeganAt):
		case p.level == 0:
			w.m.wrong(doneIsTrue, "%s is done, and %s is awake", r.step, out.InstanceID)
		case r.out == launcherapi.OutStop && !w.everWrong("no descriptors"):
			w.m.wrong(doneIsTrue, "%s is done, and %s was not stopped", r.step, out.InstanceID)
		}
	}
}

// undoneIsTrue: who was awake is awake again, and who came in is gone or asleep.
func (w *world) undoneIsTrue(r *request, a answer) {
	unseen := w.everWrong("no descriptors") // whose end was not seen is shown as it was written, until it is adopted
	for _, out := range a.result.Out {
		p := w.process(out.InstanceID)
		// Its last record says that it is awake, and it does not say that it sleeps, or says so late.
		silent := p != nil && (time.Now().Before(p.hung) || p.slow > 0) && w.deaths > 0 && w.everWrong("disk full")
		if (p == nil && !unseen || p != nil && (p.level > 0 || !p.ready)) && !silent && !w.justDied(out.InstanceID) {
			w.m.wrong(undoneIsTrue, "%s is undone, and %s is not awake", r.step, out.InstanceID)
		}
	}
	if w.damaged["a swap"] {
		return // nobody knows that the key was used before, or who made whom
	}
	again := w.startAgainAfter(r) // the next swap on these GPUs begins before this one is answered
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	woke := slices.ContainsFunc(a.result.Phases, func(p launcherapi.PhaseTime) bool { return p.Name == launcherapi.PhaseWake })
	for _, p := range w.m.living() {
		switch {
		case r.what == "swap in new" && p.model == r.request && (p.birth.Before(a.ended()) || !slices.Contains(again, p.name)):
			w.m.violated(undoneIsTrue, "%s is undone, and a process of %s lives", r.step, p.name)
		case r.what == "swap in sleeping" && woke && p.name == r.id && (!p.birth.After(a.result.BeganAt) || p.isRestarted() && p.birth.Before(a.ended())) && p.level == 0 && !p.troubled:
			w.m.violated(undoneIsTrue, "%s is undone, and %s is awake", r.step, p.name)
		}
	}
}

// undoFailedIsTrue: something was wrong, and with the swap itself: who left, is well
// and sleeps still has no room, unless its way back goes on.
func (w *world) undoFailedIsTrue(r *request, a answer) {
	if !w.excused(r, a) {
		w.m.wrong(undoFailedIsTrue, "%s: %v, and nothing was wrong", r.step, a.err)
	}
	if time.Since(a.result.BeganAt) > r.timeLimit()-2*leeway {
		return
	}
	for _, out := range a.result.Out {
		if w.wasDeleted(out.InstanceID) {
			continue
		}
		w.m.mu.Lock()
		for _, p := range w.m.living() {
			if p.name == out.InstanceID && !p.troubled && p.level > 0 && p.birth.Before(a.result.BeganAt) && !p.silent.After(a.result.BeganAt) && w.m.hasRoom(p, w.damaged["an instance"]) {
				w.m.violated(undoFailedIsTrue, "%s: %v, and there is room for %s", r.step, a.err, p.name)
			}
		}
		w.m.mu.Unlock()
	}
}

// hasRoom says whether there is room for a sleeper to wake, now or when the memory
// is back that others have given up. Where records were damaged, a sleeper that does not say
// that it sleeps counts as one that starts. The lock is held.
func (m *machine) hasRoom(sleeper *proc, damaged bool) bool {
	if m.ever["blind"] || m.ever["memory is lost"] || m.ever["driver hangs"] || m.ever["no descriptors"] {
		return false // so the launcher cannot know
	}
	for uuid, need := range sleeper.need {
		if m.ever["stranger "+uuid] {
			return false
		}
		for _, p := range m.living() {
			switch {
			case p == sleeper || p.need[uuid] == 0:
			case p.level > 0 && (!damaged || !p.troubled):
				need += gib
			default:
				need += p.need[uuid]
			}
		}
		if need > 80*gib {
			return false
		}
	}
	return true
}

// justDied says whether the last process of an instance ended at this very moment.
func (w *world) justDied(id string) bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.procs {
		if p.name == id && !p.alive() && time.Since(p.exit.At) <= time.Millisecond {
			return true
		}
	}
	return false
}

// refusedIsTrue: nothing was touched, and what refused it is the swap's business.
func (w *world) refusedIsTrue(r *request, l *life, a answer) {
	w.mu.Lock()
	started := w.starts[r.request] > 0 && r.asked == 1
	w.mu.Unlock()
	if started {
		w.m.wrong(refusedIsTrue, "%s is refused, and a process was made for it", r.step)
	}
	if id, touched := w.seen.touchedBy[a.result.SwapID]; touched {
		w.m.wrong(refusedIsTrue, "%s is refused, and it moved %s", r.step, id)
	}
	e, ok := errors.AsType[*launcher.Error](a.err)
	if !ok || e.Fit == nil || e.Fit.GPUUUID == "" {
		return
	}
	gpus := r.gpus
	if len(gpus) == 0 {
		if view, err := l.sup.Get(r.id); err == nil {
			gpus = view.GPUUUIDs
		}
	}
	all, _ := l.sup.List()
	for _, i := range all { // who leaves a GPU falls asleep on all of its GPUs
		if slices.ContainsFunc(i.GPUUUIDs, func(g string) bool { return slices.Contains(gpus, g) }) {
			gpus = append(slices.Clone(gpus), i.GPUUUIDs...)
		}
	}
	if len(gpus) > 0 && !slices.Contains(gpus, e.Fit.GPUUUID) {
		w.m.wrong(refusedIsTrue, "%s is refused for %s of GPU %s, which it does not touch", r.step, e.Fit.Bound, e.Fit.GPUUUID)
	}
}

// failureIsTrue: a swap that has touched something came to nothing for what nobody
// could know at its admission, and for a reason.
func (w *world) failureIsTrue(r *request, a answer) {
	e, _ := errors.AsType[*launcher.Error](a.err)
	failed, ok := errors.AsType[*launcher.SwapError](a.err)
	if !ok {
		return
	}
	code := launcher.CodeOf(a.err)
	bound := e != nil && e.Fit != nil && e.Fit.Bound != ledger.BoundDeviceMemory
	if code == launcherapi.CodePortTaken || code == launcherapi.CodeExists || bound {
		w.m.wrong(refusedFirst, "%s fails in phase %s: %v", r.step, failed.Phase, a.err)
	}
	left := failed.Phase == launcherapi.PhaseDrain || failed.Phase == launcherapi.PhaseSleep
	undo := w.asksForItsUndo(r, code)
	if left && !undo && (code == launcherapi.CodeNotFound || code == launcherapi.CodeConflict) && !slices.ContainsFunc(w.parties(r, a), w.wasTroubled) {
		w.m.wrong(deletedIsLeft, "%s fails in phase %s: %v", r.step, failed.Phase, a.err)
	}
	if !undo && !w.excused(r, a) && w.deaths == 0 {
		w.m.wrong(failsForAReason, "%s fails in phase %s: %v", r.step, failed.Phase, a.err)
	}
}

// parties are the instances of a swap.
func (w *world) parties(r *request, a answer) (ids []string) {
	if a.result.In != nil {
		ids = append(ids, a.result.In.InstanceID)
	}
	if r.id != "" {
		ids = append(ids, r.id)
	}
	for _, out := range a.result.Out {
		ids = append(ids, out.InstanceID)
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.procs {
		diedMeanwhile := !p.alive() && p.exit.At.After(r.first) // who left, and is gone, is not listed
		if p.model == r.request || diedMeanwhile {
			ids = append(ids, p.name)
		}
	}
	return append(ids, a.result.Deleted...)
}

// excused says whether anything was wrong by which a swap may fail.
func (w *world) excused(r *request, a answer) bool {
	for _, id := range w.parties(r, a) {
		if w.wasTroubled(id) || w.wasDeleted(id) || w.wasLost(id) {
			return true
		}
	}
	if w.wasDeleted(r.id) { // with all others, before it had a process
		return true
	}
	waited := 0.0
	for _, p := range a.result.Phases {
		if p.Name == launcherapi.PhaseAdmit {
			waited = p.DurationMS
		}
	}
	if launcher.CodeOf(a.err) == launcherapi.CodeEngineTimeout && (r.limit > 0 || waited > 20_000) {
		return true
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	gpus := r.gpus
	if len(gpus) == 0 {
		gpus = []string{"g0", "g1"}
	}
	return w.m.excused(gpus) || w.m.ever["no descriptors"] || w.m.ever["disk full"] || w.m.ever["disk stalls"] || w.m.ever["loads take long"]
}

func (w *world) everWrong(what string) bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.m.ever[what]
}

// wasTroubled says whether something was ever wrong with an engine of that id.
func (w *world) wasTroubled(id string) bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.procs {
		if p.name == id && p.troubled {
			return true
		}
	}
	return false
}

// wasDeleted says whether a client ever asked for the end of an instance of that id.
func (w *world) wasDeleted(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.requests, func(r *request) bool {
		return r.what == "delete all" || r.what == "delete" && r.id == id
	})
}
