package frontdoor

import (
	"context"
	"net/http"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instances are those of the launcher.
type Instances interface {
	List() ([]launcherapi.Instance, uint64)
	Wake(id string, ask launcher.VerbRequest) (launcherapi.Instance, error)
	Sleep(id string, ask launcher.VerbRequest) (launcherapi.Instance, error)
	Delete(ctx context.Context, id string) (launcherapi.Instance, error)
	AwaitState(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error)
	// Needs returns, by instance and GPU, the device memory that each needs while it is awake.
	Needs() map[string]map[string]uint64
	GPUs() launcherapi.GPUList
}

// Swaps begins swaps.
type Swaps interface {
	Begin(req launcherapi.SwapRequest, key string) (launcher.SwapRun, error)
}

// fleet shows the scheduler the launcher's instances, and carries out what it decides.
type fleet struct {
	instances Instances
	swaps     Swaps
}

// made is the name of the model of an instance that somebody has made by the control API.
func made(id string) string { return "instance " + id }

// Look returns the GPUs and the models.
func (f *fleet) Look() ([]scheduler.GPU, []scheduler.Model) {
	list, needs := f.instances.GPUs(), f.instances.Needs()
	gpus := make([]scheduler.GPU, 0, len(list.GPUs))
	for _, g := range list.GPUs {
		gpu := scheduler.GPU{UUID: g.UUID, TotalBytes: g.MemoryTotalBytes, ForeignBytes: g.ForeignBytes}
		for _, sleeper := range g.Sleepers {
			gpu.AsleepBytes += sleeper.Bytes
		}
		gpus = append(gpus, gpu)
	}
	all, _ := f.instances.List()
	models := make([]scheduler.Model, 0, len(all))
	for _, i := range all {
		models = append(models, modelOf(i, needs[i.InstanceID]))
	}
	return gpus, models
}

// modelOf returns the model of an instance that somebody has made. A rank of a server over
// several launchers is left to whoever has made it.
func modelOf(i launcherapi.Instance, needs map[string]uint64) scheduler.Model {
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

// find returns the instance of a model; nil: it has none.
func (f *fleet) find(model string) *launcherapi.Instance {
	all, _ := f.instances.List()
	n := slices.IndexFunc(all, func(i launcherapi.Instance) bool { return made(i.InstanceID) == model })
	if n < 0 {
		return nil
	}
	return &all[n]
}

// Do carries out an action. A swap goes on when ctx ends.
func (f *fleet) Do(ctx context.Context, a scheduler.Action) error {
	i := f.find(a.Model)
	if i == nil {
		return launcher.NotFound(a.Model)
	}
	id := i.InstanceID
	switch {
	case a.Kind == scheduler.Sleep:
		return f.awaits(ctx, id, launcher.Sleeping, func() (launcherapi.Instance, error) {
			return f.instances.Sleep(id, launcher.VerbRequest{Level: a.Level, Drain: -1})
		})
	case a.Kind == scheduler.Stop:
		_, err := f.instances.Delete(ctx, id)
		return err
	case a.Kind == scheduler.Wake && len(a.Out) == 0:
		return f.awaits(ctx, id, launcher.Awake, func() (launcherapi.Instance, error) { return f.instances.Wake(id, launcher.VerbRequest{}) })
	}
	run, err := f.swaps.Begin(launcherapi.SwapRequest{GPUUUIDs: a.GPUs, In: &launcherapi.SwapIn{InstanceID: id}}, "")
	if err == nil {
		_, err = run.Wait(ctx)
	}
	return err
}

// awaits calls a verb of an instance, and waits for its outcome.
func (f *fleet) awaits(ctx context.Context, id string, state launcher.State, verb func() (launcherapi.Instance, error)) error {
	_, err := verb()
	if err == nil {
		_, err = f.instances.AwaitState(ctx, id, state)
	}
	return err
}

// Handlers returns the handler of an instance's public port; nil: it has none.
type Handlers func(id string) http.Handler
