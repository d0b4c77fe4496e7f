package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instances are those of the launcher.
type Instances interface {
	List() ([]launcherapi.Instance, uint64)
	Create(c launcher.CreateRequest) (launcherapi.Instance, error)
	Wake(id string, ask launcher.VerbRequest) (launcherapi.Instance, error)
	Sleep(id string, ask launcher.VerbRequest) (launcherapi.Instance, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
	AwaitState(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error)
	// Plan returns how many GPUs an instance needs, and how much memory of each, and starts
	// nothing.
	Plan(spec launcherapi.InstanceSpec) (gpus int, bytes uint64, err error)
	// Needs returns, by instance and GPU, the device memory that each needs while it is awake.
	Needs() map[string]map[string]uint64
	GPUs() launcherapi.GPUList
}

// Swaps begins swaps.
type Swaps interface {
	Begin(req launcherapi.SwapRequest, key string) (launcher.SwapRun, error)
}

// Handlers returns the handler of an instance's public port; nil: it has none.
type Handlers func(id string) http.Handler

// fleet shows the scheduler the models with the launcher's instances, and carries out what it
// decides. A model is one of the catalogue, or an instance that somebody has made by the control
// API.
type fleet struct {
	instances Instances
	swaps     Swaps
	offers    atomic.Pointer[Offers]
	observer  Observer
	past      inference.Predictor // of starts and wakes
}

func newFleet(o Options) *fleet {
	f := &fleet{instances: o.Instances, swaps: o.Swaps, observer: o.Observer}
	f.offers.Store(o.Offers)
	return f
}

// made is the name of the model of an instance that somebody has made. No model of a catalogue
// has a space in its name.
func made(id string) string { return "instance " + id }

// offerOf returns the model of the catalogue whose instance this is; nil: there is none.
func (o *Offers) offerOf(i *launcherapi.Instance) *offer {
	if m := o.byName(i.Annotations[launcherapi.AnnotationModel]); m != nil && m.id == i.InstanceID {
		return m
	}
	return nil
}

// isRetired reports whether an instance belongs to a model that the catalogue has no more, or that
// has changed since.
func (o *Offers) isRetired(i *launcherapi.Instance) bool {
	if i.Annotations[launcherapi.AnnotationModel] == "" {
		return false
	}
	m := o.offerOf(i)
	return m == nil || i.Annotations[launcherapi.AnnotationModelDigest] != m.digest
}

// nameOf returns the name of an instance's model.
func (o *Offers) nameOf(i *launcherapi.Instance) string {
	if m := o.offerOf(i); m != nil {
		return m.Name
	}
	return made(i.InstanceID)
}

// Look returns the GPUs and the models.
func (f *fleet) Look() ([]scheduler.GPU, []scheduler.Model) {
	list, needs, offers := f.instances.GPUs(), f.instances.Needs(), f.offers.Load()
	gpus, residues := gpusOf(list)
	all, _ := f.instances.List()
	models := make([]scheduler.Model, 0, len(all)+len(offers.models))
	there := map[string]bool{}
	for n := range all {
		m := modelOf(&all[n], needs[all[n].InstanceID])
		if o := offers.offerOf(&all[n]); o != nil {
			there[o.Name] = true
			o.describe(&m, &all[n])
		} else {
			m.Retired = all[n].Annotations[launcherapi.AnnotationModel] != "" // the catalogue has it no more
		}
		m.Residue = residues[all[n].InstanceID]
		models = append(models, m)
	}
	for n := range offers.models {
		if o := &offers.models[n]; !there[o.Name] {
			models = append(models, o.absent(all))
		}
	}
	return gpus, models
}

// gpusOf returns the GPUs, and what sleepers hold of them, by instance and GPU.
func gpusOf(list launcherapi.GPUList) ([]scheduler.GPU, map[string]map[string]uint64) {
	gpus, residues := make([]scheduler.GPU, 0, len(list.GPUs)), map[string]map[string]uint64{}
	for _, g := range list.GPUs {
		gpu := scheduler.GPU{UUID: g.UUID, TotalBytes: g.MemoryTotalBytes, ForeignBytes: g.ForeignBytes}
		for _, sleeper := range g.Sleepers {
			gpu.AsleepBytes += sleeper.Bytes
			if residues[sleeper.InstanceID] == nil {
				residues[sleeper.InstanceID] = map[string]uint64{}
			}
			residues[sleeper.InstanceID][g.UUID] = sleeper.Bytes
		}
		gpus = append(gpus, gpu)
	}
	return gpus, residues
}

// absent returns the model without an instance. Another instance that has its id is in its way; one
// that is about to go is waited for.
func (o *offer) absent(all []launcherapi.Instance) scheduler.Model {
	m := scheduler.Model{}
	o.describe(&m, nil)
	n := slices.IndexFunc(all, func(i launcherapi.Instance) bool { return i.InstanceID == o.id })
	if n < 0 {
		return m
	}
	switch state := launcher.State(all[n].State); {
	case state.Ended(): // the new instance takes its place
	case state == launcher.Stopping || all[n].Annotations[launcherapi.AnnotationModel] != "":
		m.Busy = true
	default:
		m.Hindered = fmt.Sprintf("its instance would be %s, and somebody has made an instance with that id: delete that one, or give the model another name", o.id)
	}
	return m
}

// modelOf returns the model of an instance that somebody has made. A rank of a server over
// several launchers is left to whoever has made it.
func modelOf(i *launcherapi.Instance, needs map[string]uint64) scheduler.Model {
	m := scheduler.Model{
		Name: made(i.InstanceID), Pinned: i.Annotations[launcherapi.AnnotationPinned] == "true" || i.Rank != nil,
		GPUs: i.GPUUUIDs, Count: len(i.GPUUUIDs), State: launcher.State(i.State), On: i.GPUUUIDs,
		Busy: i.SwapID != "" || i.Rank != nil, Since: i.StateSince, InFlight: i.InFlight, Held: i.Held,
	}
	for _, bytes := range needs {
		m.Bytes = max(m.Bytes, bytes)
	}
	if i.LastUsedAt != nil {
		m.LastUsed = *i.LastUsedAt
	}
	return m
}

// describe makes a model one of the catalogue. i is its instance; nil: it has none.
func (o *offer) describe(m *scheduler.Model, i *launcherapi.Instance) {
	m.Name, m.Priority, m.Pinned, m.Preload, m.StopAfter = o.Name, o.Priority, o.Pinned, o.Preload, o.StopAfter
	m.SleepAfter, m.SleepLevel = o.SleepAfter, o.SleepLevel
	m.Concurrency = o.Concurrency
	ended := i != nil && m.State.Ended()
	m.Preload = m.Preload || ended && m.State == launcher.Failed && o.Restart == catalogue.RestartOnFailure
	m.GPUs, m.Count = o.GPUs.UUIDs, o.count // a sleeper that is bound to no GPUs may move
	if i == nil || ended {
		m.On, m.Bytes = nil, max(m.Bytes, o.bytes)
		return
	}
	m.Retired = i.Annotations[launcherapi.AnnotationModelDigest] != o.digest
}

// find returns the instance of a model; nil: it has none.
func (f *fleet) find(model string) *launcherapi.Instance {
	all, _ := f.instances.List()
	return f.findIn(all, model)
}

// findIn returns the instance of a model among all; nil: it has none.
func (f *fleet) findIn(all []launcherapi.Instance, model string) *launcherapi.Instance {
	offers := f.offers.Load()
	n := slices.IndexFunc(all, func(i launcherapi.Instance) bool { return offers.nameOf(&i) == model })
	if n < 0 {
		return nil
	}
	return &all[n]
}

// Do carries out an action. A swap goes on when ctx ends.
func (f *fleet) Do(ctx context.Context, a scheduler.Action) error {
	began := time.Now()
	err := f.do(ctx, a)
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	f.observer.FrontDoorTransition(string(a.Kind), outcome)
	if transition, ok := map[scheduler.Kind]inference.Transition{scheduler.Start: inference.Start, scheduler.Wake: inference.Wake}[a.Kind]; ok && err == nil {
		f.past.Observe(a.Model, transition, time.Since(began))
	}
	return err
}

func (f *fleet) do(ctx context.Context, a scheduler.Action) error {
	i, o := f.find(a.Model), f.offers.Load().byName(a.Model)
	switch {
	case a.Kind == scheduler.Start && o != nil:
		return f.start(ctx, a, o)
	case i == nil:
		return launcher.NotFound(a.Model)
	case a.Kind == scheduler.Sleep:
		return f.sleep(ctx, i.InstanceID, a.Level)
	case a.Kind == scheduler.Stop:
		return f.stop(ctx, i)
	case a.Kind == scheduler.Wake && len(a.Out) == 0:
		return f.awaits(ctx, i.InstanceID, launcher.Awake, func() (launcherapi.Instance, error) {
			return f.instances.Wake(i.InstanceID, launcher.VerbRequest{})
		})
	}
	return f.swap(ctx, a, launcherapi.SwapIn{InstanceID: i.InstanceID})
}

// start gives a model of the catalogue an instance.
func (f *fleet) start(ctx context.Context, a scheduler.Action, o *offer) error {
	s := o.spec(a.GPUs)
	if len(a.Out) == 0 {
		return f.awaits(ctx, o.id, launcher.Awake, func() (launcherapi.Instance, error) {
			return f.instances.Create(launcher.CreateRequest{ID: o.id, Spec: s})
		})
	}
	return f.swap(ctx, a, launcherapi.SwapIn{
		ID: o.id, Options: s.Options, Args: s.Args, EnvVars: s.EnvVars, Annotations: s.Annotations, Engine: s.Engine, StartMethod: s.StartMethod,
	})
}

func (f *fleet) swap(ctx context.Context, a scheduler.Action, in launcherapi.SwapIn) error {
	run, err := f.swaps.Begin(launcherapi.SwapRequest{GPUUUIDs: a.GPUs, In: &in}, "")
	if err == nil {
		_, err = run.Wait(ctx)
	}
	if failed, ok := errors.AsType[*launcher.SwapError](err); ok && slices.Contains(phasesOfLeaving, failed.Phase) && slices.ContainsFunc(a.Out, f.hasEnded) {
		return &scheduler.LeaverFailedError{Err: err}
	}
	return err
}

// phasesOfLeaving are the phases of a swap in which the models leave that were awake.
var phasesOfLeaving = []string{launcherapi.PhaseDrain, launcherapi.PhaseSleep}

// hasEnded reports whether a model has no engine.
func (f *fleet) hasEnded(model string) bool {
	i := f.find(model)
	return i == nil || launcher.State(i.State).Ended()
}

func (f *fleet) sleep(ctx context.Context, id string, level int) error {
	return f.awaits(ctx, id, launcher.Sleeping, func() (launcherapi.Instance, error) {
		return f.instances.Sleep(id, launcher.VerbRequest{Level: level, Drain: -1})
	})
}

// stop deletes an instance, once its answers in flight have ended.
func (f *fleet) stop(ctx context.Context, i *launcherapi.Instance) error {
	if i.State == string(launcher.Awake) {
		if err := f.sleep(ctx, i.InstanceID, deepest); err != nil {
			return err
		}
	}
	_, err := f.instances.Delete(ctx, i.InstanceID)
	return err
}

// deepest is the sleep level of a model that ends, which keeps nothing.
const deepest = 2

// awaits calls a verb of an instance, and waits for its outcome.
func (f *fleet) awaits(ctx context.Context, id string, state launcher.State, verb func() (launcherapi.Instance, error)) error {
	_, err := verb()
	if err == nil {
		_, err = f.instances.AwaitState(ctx, id, state)
	}
	return err
}
