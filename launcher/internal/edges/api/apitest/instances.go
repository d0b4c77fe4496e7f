// Package apitest has hand-written stand-ins for the supervisor and the coordinator
// of swaps behind the control API, which obey at once and record their calls.
package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instances is a supervisor that keeps its instances in a map, obeys at once, and
// records its calls.
type Instances struct {
	Feed *eventlog.Log
	Logs *outlog.Store

	mu     sync.Mutex
	byID   map[string]launcherapi.Instance
	over   map[string]chan struct{} // closed when nobody writes to the log any more
	calls  []string
	fail   error
	hold   chan struct{}
	panics bool
}

// NewInstances makes a supervisor without instances.
func NewInstances(f *eventlog.Log, logs *outlog.Store) *Instances {
	return &Instances{Feed: f, Logs: logs, byID: map[string]launcherapi.Instance{}, over: map[string]chan struct{}{}}
}

func (f *Instances) called(format string, args ...any) error {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	if f.panics {
		panic("on purpose")
	}
	err := f.fail
	f.fail = nil
	return err
}

// Record lists the calls so far.
func (f *Instances) Record() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// FailNext has the next call fail with an error.
func (f *Instances) FailNext(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Panic has every call panic, or with false no longer.
func (f *Instances) Panic(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.panics = yes
}

// Hold has verbs wait until the channel is closed.
func (f *Instances) Hold(until chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = until
}

// Put gives an instance a state, and tells the watchers.
func (f *Instances) Put(id string, state launcher.State, kind launcherapi.EventType) launcherapi.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.put(id, state, kind)
}

func (f *Instances) put(id string, state launcher.State, kind launcherapi.EventType) launcherapi.Instance {
	i := f.byID[id]
	i.InstanceID, i.State, i.Status = id, string(state), state.Status()
	i.Engine, i.ServedModelNames = "vllm", []string{i.Model}
	i.Revision = f.Feed.Append(kind, i)
	f.byID[id] = i
	return i
}

// Create makes an instance that is starting, with an empty log.
func (f *Instances) Create(c launcher.CreateRequest) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("create %q gpus=%v pinned=%s", c.ID, c.Spec.GPUUUIDs, c.Spec.Annotations[launcherapi.AnnotationPinned]); err != nil {
		return launcherapi.Instance{}, err
	}
	id := c.ID
	if id == "" {
		id = fmt.Sprintf("made-%d", len(f.byID))
	}
	if _, taken := f.byID[id]; taken {
		return launcherapi.Instance{}, launcher.Existsf("Instance with ID %s already exists", id)
	}
	f.byID[id] = launcherapi.Instance{Options: c.Spec.Options, Args: c.Spec.Args, GPUUUIDs: c.Spec.GPUUUIDs, Annotations: c.Spec.Annotations, EnvVars: c.Spec.EnvVars, Model: "m"}
	f.over[id] = make(chan struct{})
	file, _, err := f.Logs.Create(id)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	_ = file.Close()
	return f.put(id, launcher.Starting, launcherapi.EventCreated), nil
}

// Get shows an instance.
func (f *Instances) Get(id string) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("get %q", id); err != nil {
		return launcherapi.Instance{}, err
	}
	i, ok := f.byID[id]
	if !ok {
		return i, launcher.NotFound(id)
	}
	return i, nil
}

// List shows every instance, the oldest change first.
func (f *Instances) List() ([]launcherapi.Instance, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.called("list")
	var all []launcherapi.Instance
	for _, i := range f.byID {
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b launcherapi.Instance) int { return int(a.Revision) - int(b.Revision) })
	return all, f.Feed.Revision()
}

func (f *Instances) verb(id, name string, ask launcher.VerbRequest, to launcher.State) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("%s %q level=%d drain=%s limit=%s", name, id, ask.Level, ask.Drain, ask.Limit); err != nil {
		return launcherapi.Instance{}, err
	}
	if _, ok := f.byID[id]; !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	return f.put(id, to, launcherapi.EventUpdated), nil
}

// Sleep has an instance begin to fall asleep.
func (f *Instances) Sleep(id string, ask launcher.VerbRequest) (launcherapi.Instance, error) {
	return f.verb(id, "sleep", ask, launcher.FallingAsleep)
}

// Wake has an instance begin to wake.
func (f *Instances) Wake(id string, ask launcher.VerbRequest) (launcherapi.Instance, error) {
	return f.verb(id, "wake", ask, launcher.Waking)
}

// AwaitState puts an instance into the wanted state.
func (f *Instances) AwaitState(ctx context.Context, id string, want launcher.State) (launcherapi.Instance, error) {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return launcherapi.Instance{}, fmt.Errorf("cannot wait: %w", context.Cause(ctx))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("await %q %s", id, want); err != nil {
		return launcherapi.Instance{}, err
	}
	return f.put(id, want, launcherapi.EventUpdated), nil
}

// Delete forgets an instance, and ends its log.
func (f *Instances) Delete(_ context.Context, id string) (launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("delete %q", id); err != nil {
		return launcherapi.Instance{}, err
	}
	if _, ok := f.byID[id]; !ok {
		return launcherapi.Instance{}, launcher.NotFound(id)
	}
	return f.forget(id), nil
}

func (f *Instances) forget(id string) launcherapi.Instance {
	i := f.put(id, launcher.Stopped, launcherapi.EventDeleted)
	close(f.over[id])
	delete(f.byID, id)
	return i
}

// DeleteAll forgets every instance.
func (f *Instances) DeleteAll(context.Context) ([]launcherapi.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("delete all"); err != nil {
		return nil, err
	}
	var out []launcherapi.Instance
	for id := range f.byID {
		out = append(out, f.forget(id))
	}
	return out, nil
}

// LogName names an instance's log.
func (f *Instances) LogName(id string) (string, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.called("log %q", id); err != nil {
		return "", nil, err
	}
	name, _ := f.Logs.Latest(id)
	over, ok := f.over[id]
	if !ok {
		return "", nil, launcher.NotFound(id)
	}
	return name, over, nil
}

// GPUs shows one GPU.
func (f *Instances) GPUs() launcherapi.GPUList {
	return launcherapi.GPUList{Source: "simulated", GPUs: []launcherapi.GPU{{
		UUID: "GPU-a", Healthy: true, MemoryTotalBytes: 80 << 30,
		Awake: []launcherapi.GPUHolder{{InstanceID: "a", State: "awake", Bytes: 1 << 30}}, Sleepers: []launcherapi.GPUHolder{},
	}}}
}
