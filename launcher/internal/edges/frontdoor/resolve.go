package frontdoor

import (
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// resolve says what a client's name means now: models of the catalogue, or else an instance that
// somebody has made. The error is a *[inference.UnknownModel].
func (f *FrontDoor) resolve(name string) (catalogue.Target, error) {
	offers := f.fleet.offers.Load()
	means, err := offers.catalogue.Resolve(name, f.Profile())
	if err == nil {
		return means, nil
	}
	all, _ := f.opts.Instances.List()
	if i := madeAs(offers, all, name); i != nil {
		return catalogue.Target{Candidates: []catalogue.Candidate{{Model: made(i.InstanceID)}}}, nil
	}
	return catalogue.Target{}, err
}

// enter chooses among the models that a name stands for, and asks the scheduler for the chosen
// one. Each request sees those that came before.
func (f *FrontDoor) enter(means catalogue.Target) (catalogue.Candidate, *scheduler.Ticket, error) {
	f.entering.Lock()
	defer f.entering.Unlock()
	chosen := f.choose(f.fleet.offers.Load(), means)
	ticket, err := f.sched.Enter(chosen.Model)
	return chosen, ticket, err
}

// madeAs returns the instance that somebody has made and that serves a model of that name; one
// that is awake goes first. nil: there is none.
func madeAs(offers *Offers, all []launcherapi.Instance, name string) *launcherapi.Instance {
	var found *launcherapi.Instance
	for n := range all {
		i := &all[n]
		if !slices.Contains(i.ServedModelNames, name) || offers.offerOf(i) != nil || i.Annotations[launcherapi.AnnotationModel] != "" {
			continue
		}
		if found == nil || i.State == string(launcher.Awake) {
			found = i
		}
	}
	return found
}

// choose chooses among the models that a name stands for.
func (f *FrontDoor) choose(offers *Offers, means catalogue.Target) catalogue.Candidate {
	switch means.Strategy {
	case catalogue.StrategyNearest:
		return nearest(means.Candidates, f.states(offers))
	case catalogue.StrategySpillover:
		for _, c := range means.Candidates {
			if f.load(c.Model) < means.N {
				return c
			}
		}
		return slices.MinFunc(means.Candidates, func(a, b catalogue.Candidate) int { return f.load(a.Model) - f.load(b.Model) })
	}
	return means.Candidates[0]
}

// load returns how many requests a model has: those that wait, and those that are answered.
func (f *FrontDoor) load(model string) int {
	d := f.sched.Show(model)
	return d.Waiting + d.InFlight
}

// states returns the states of the instances of the catalogue's models.
func (f *FrontDoor) states(offers *Offers) map[string]launcher.State {
	all, _ := f.opts.Instances.List()
	states := map[string]launcher.State{}
	for n := range all {
		if o := offers.offerOf(&all[n]); o != nil {
			states[o.Name] = launcher.State(all[n].State)
		}
	}
	return states
}

// nearest returns the model that answers soonest: one that is awake, one that sleeps, one that
// starts, one that has no engine.
func nearest(candidates []catalogue.Candidate, states map[string]launcher.State) catalogue.Candidate {
	distance := func(c catalogue.Candidate) int {
		switch states[c.Model] {
		case launcher.Awake:
			return 0
		case launcher.Waking:
			return 1
		case launcher.Sleeping, launcher.FallingAsleep:
			return 2
		case launcher.Starting:
			return 3
		case launcher.Stopping, launcher.Stopped, launcher.Failed:
		}
		return 4
	}
	return slices.MinFunc(candidates, func(a, b catalogue.Candidate) int { return distance(a) - distance(b) })
}

// Reload takes the models of another catalogue. What did not change is not touched; an instance
// whose model has changed or is gone ends as soon as nobody uses it. A model that has changed is not
// left alone any longer for its failures.
func (f *FrontDoor) Reload(o *Offers) {
	before := f.fleet.offers.Swap(o)
	for _, change := range catalogue.Diff(before.catalogue, o.catalogue) {
		if change.Kind != catalogue.Same {
			f.fleet.past.Forget(change.Model)
			f.sched.Forgive(change.Model)
			f.opts.Logger.Info("the catalogue has changed", "model", change.Model, "change", change.Kind, "fields", change.Fields)
		}
	}
	f.sched.Kick()
}
