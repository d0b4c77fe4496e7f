package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// watched is the fleet, with checks of each action.
type watched struct {
	*fleet
	sim *simulation
}

func (w watched) Do(ctx context.Context, a Action) error {
	w.sim.log("%s: %s %s on %v for %v", a.Row, a.Kind, a.Model, a.GPUs, a.Out)
	gpus := w.sim.checkAction(a)
	w.sim.mu.Lock()
	w.sim.running[&a] = gpus
	w.sim.mu.Unlock()
	err := w.fleet.Do(ctx, a)
	w.sim.mu.Lock()
	delete(w.sim.running, &a)
	w.sim.mu.Unlock()
	if err != nil {
		w.sim.log("%s %s: %v", a.Kind, a.Model, err)
	}
	if err != nil && w.sim.healthy && ctx.Err() == nil {
		w.sim.breaks("an action fails though all is well: %s %s: %v", a.Kind, a.Model, err)
	}
	return err
}

// checkAction checks an action that begins. It returns its GPUs.
func (sim *simulation) checkAction(a Action) map[string]bool {
	sim.fleet.mu.Lock()
	models := map[string]instance{}
	for _, i := range sim.fleet.models {
		if !i.removed {
			models[i.Name] = *i
		}
	}
	sim.fleet.mu.Unlock()
	m, there := models[a.Model]
	sim.checkAttempts(a)
	comesIn := a.Kind == Start || a.Kind == Wake
	if !comesIn && a.Row != rowMoves && len(sim.requests(a.Model, time.Now().Add(-slack))) > 0 {
		sim.breaks("%s has requests, and is put away: %s", a.Model, a.Row)
	}
	gpus := map[string]bool{}
	switch {
	case a.Kind == Stop && m.State == launcher.Sleeping: // the others stay as they are
		return gpus
	case m.State == "" || m.State.Ended():
		m.On = nil
	}
	for _, g := range slices.Concat(a.GPUs, m.On) {
		gpus[g] = true
	}
	if old := time.Now().Add(-slack); there && comesIn {
		if !m.Preload && len(sim.requests(a.Model, time.Time{})) == 0 && m.changedAt.Before(old) {
			sim.breaks("nobody asked for %s, and it is brought in", a.Model)
		}
		for _, name := range a.Out {
			o := models[name]
			for _, g := range o.On {
				gpus[g] = gpus[g] || sim.healthy // else it may end, and leave its other GPUs at once
			}
			if o.changedAt.Before(old) && m.changedAt.Before(old) && o.Since.Before(old) {
				sim.checkLeaving(m, o)
			}
		}
	}
	sim.mu.Lock()
	var shared []string
	for other, taken := range sim.running {
		if o := models[other.Model]; other.Kind == Stop && (o.State == "" || o.State.Ended()) {
			continue // it has stopped, and its caller does not know yet
		}
		for g := range taken {
			if taken[g] && gpus[g] && (comesIn || other.Kind == Start || other.Kind == Wake) {
				shared = append(shared, other.Model+" on "+g)
			}
		}
	}
	sim.mu.Unlock()
	if len(shared) > 0 {
		sim.breaks("two actions change a GPU: %s and %v", a.Model, shared)
	}
	return gpus
}

// checkLeaving checks that a model may leave for another one.
func (sim *simulation) checkLeaving(m, o instance) {
	inUse := sim.requests(o.Name, time.Now().Add(-slack))
	awake := time.Since(o.Since)
	switch {
	case o.Pinned:
		sim.breaks("%s is pinned, and leaves for %s", o.Name, m.Name)
	case len(inUse) > 0 && o.Priority > m.Priority:
		sim.breaks("%s has priority %d and requests, and leaves for %s with %d", o.Name, o.Priority, m.Name, m.Priority)
	case len(inUse) > 0 && awake < sim.turn:
		sim.breaks("%s has requests, and leaves for %s %s after the beginning of its turn", o.Name, m.Name, awake)
	case awake < sim.stays:
		sim.breaks("%s leaves for %s %s after it became awake", o.Name, m.Name, awake)
	}
}

// checkAttempts checks that the scheduler does not act in a loop.
func (sim *simulation) checkAttempts(a Action) {
	sim.mu.Lock()
	recent := append(slices.DeleteFunc(sim.attempts[a.Model], func(t time.Time) bool { return time.Since(t) > 10*time.Second }), time.Now())
	sim.attempts[a.Model] = recent
	sim.mu.Unlock()
	if len(recent) > 60 { // conflicts are tried again five times a second
		sim.breaks("%d actions with %s within ten seconds", len(recent), a.Model)
	}
}

// count checks how often the scheduler looks.
func (sim *simulation) count(end time.Time) {
	for time.Now().Before(end) {
		before := sim.fleet.looked()
		<-time.After(time.Second)
		if n := sim.fleet.looked() - before; n > int(time.Second/betweenSteps)+1 {
			sim.breaks("%d looks in a second", n)
		}
	}
}

// requests returns the requests for a model that have been open since a time; zero: and those that
// have ended just now, or that the scheduler is about to know.
func (sim *simulation) requests(model string, since time.Time) (all []*request) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for r := range sim.open {
		if r.model == model && (since.IsZero() || r.ticket != nil && !r.entered.After(since) && r.ended.IsZero()) {
			all = append(all, r)
		}
	}
	return all
}

// enter enters a request, and leaves it at the end.
func (sim *simulation) enter(r *request) (leave func(), err error) {
	r.entered = time.Now()
	sim.mu.Lock()
	sim.open[r] = true // before the scheduler knows of it, and acts
	sim.mu.Unlock()
	ticket, err := sim.s.Enter(r.model)
	if err != nil {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		delete(sim.open, r)
		return nil, err
	}
	sim.mu.Lock()
	r.ticket = ticket
	sim.mu.Unlock()
	return func() {
		sim.mu.Lock()
		r.ended, sim.asked[r.model] = time.Now(), time.Now()
		maps.DeleteFunc(sim.open, func(r *request, _ bool) bool { return !r.ended.IsZero() && time.Since(r.ended) > slack })
		sim.mu.Unlock()
		ticket.Leave() // and the next one may be answered
	}, nil
}

// ask sends a request, and has it answered. It returns how long it waited, and the refusal.
func (sim *simulation) ask(r *request, patience, takes time.Duration) error {
	leave, err := sim.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	gone := make(chan struct{})
	timer := time.AfterFunc(patience, func() { close(gone) })
	defer timer.Stop()
	select {
	case <-r.ticket.Ready():
	case <-gone:
		if patience >= time.Hour {
			sim.breaks("a request for %s is lost: %s", r.model, r.ticket.Why())
		}
		return nil
	}
	if err := r.ticket.Err(); err != nil {
		return err
	}
	sim.checkLetThrough(r)
	sim.fleet.mu.Lock()
	i := sim.fleet.find(r.model)
	sim.fleet.mu.Unlock()
	if i == nil || !sim.fleet.answer(i, takes, gone) {
		return errCut
	}
	sim.mu.Lock()
	sim.answered++
	sim.mu.Unlock()
	return nil
}

var errCut = errors.New("the answer was cut off")

// checkLetThrough checks a request that was let through.
func (sim *simulation) checkLetThrough(r *request) {
	sim.fleet.mu.Lock()
	awake, limit, unlimited := false, 0, true
	for _, i := range sim.fleet.models {
		if i.Name == r.model {
			awake, limit = awake || i.State == launcher.Awake || time.Since(i.leftAt) <= slack, i.Concurrency
			unlimited = limit == 0
			if time.Since(i.changedAt) < 10*time.Second { // more than the new limit may be answered still
				limit = 0
			}
		}
	}
	sim.fleet.mu.Unlock()
	if !awake {
		sim.breaks("a request is let through to %s, which is not awake", r.model)
	}
	answered := 0
	for _, other := range sim.requests(r.model, time.Now()) {
		ready := false
		select {
		case <-other.ticket.Ready():
			ready = other.ticket.Err() == nil
		default:
			if other.entered.Before(r.entered) {
				sim.breaks("a request for %s overtakes one that came %s before it", r.model, r.entered.Sub(other.entered))
			}
		}
		if ready {
			answered++
		}
	}
	if limit > 0 && answered > limit {
		sim.breaks("%s answers %d requests at once, and its limit is %d", r.model, answered, limit)
	}
	if sim.healthy && unlimited { // else it waits for its turn, and then for others to be answered
		sim.checkBound(r)
	}
}

// checkBound checks the bound that spec/scheduling.md proves. The contenders are the models that
// had requests meanwhile, those that are preloaded, and an idle one that was awake.
func (sim *simulation) checkBound(r *request) {
	k := 1
	var rest, comes time.Duration
	sim.fleet.mu.Lock()
	models := slices.Clone(sim.fleet.models)
	sim.fleet.mu.Unlock()
	for _, i := range models {
		rest, comes = max(rest, i.rest), max(comes, i.start, i.wake)
		if i.Preload || len(sim.requests(i.Name, time.Now())) > 0 || sim.askedSince(i.Name, r.entered) {
			k++
		}
	}
	bound := time.Duration(k) * (max(sim.turn, sim.stays) + sim.fleet.drain + rest + comes + slack)
	waited := time.Since(r.entered)
	if waited > bound {
		sim.breaks("a request for %s waited %s, and the bound for %d models is %s", r.model, waited, k, bound)
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.longest = max(sim.longest, int64(100*waited/bound))
}

func (sim *simulation) askedSince(model string, t time.Time) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return !sim.asked[model].Before(t)
}

// askEach asks for each model once all is calm.
func (sim *simulation) askEach() {
	for _, name := range sim.modelNames() {
		if err := sim.ask(&request{model: name}, 24*time.Hour, time.Second); err != nil {
			sim.breaks("all is calm, and %s does not answer: %v", name, err)
		}
	}
}

// checkPreloads checks that the models that are to be preloaded are awake where there is room.
func (sim *simulation) checkPreloads() {
	sim.fleet.mu.Lock()
	models := slices.Clone(sim.fleet.models)
	var empty []string
	for _, g := range sim.fleet.gpus {
		if sim.fleet.awakeBytes(g.UUID, nil) == 0 {
			empty = append(empty, g.UUID)
		}
	}
	sim.fleet.mu.Unlock()
	for _, i := range models {
		room := len(empty) >= i.Count
		for _, g := range slices.Concat(i.GPUs, i.On) {
			room = room && slices.Contains(empty, g)
		}
		if i.Preload && !i.removed && i.State != launcher.Awake && room {
			sim.breaks("%s is to be preloaded, and is %q though there is room", i.Name, i.State)
		}
	}
}
