package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// instance is a model and its instance in a simulated launcher.
type instance struct {
	Model
	needs             uint64 // of each GPU
	start, wake, rest time.Duration
	failing           int // so many starts and wakes fail

	removed   bool
	changedAt time.Time // when its configuration was changed
	leftAt    time.Time // when it was last awake
}

// fleet is a simulated launcher.
type fleet struct {
	mu      sync.Mutex
	gpus    []GPU
	models  []*instance
	residue uint64        // what a sleeper holds of each GPU
	drain   time.Duration // how long a swap waits for answers at most
	calls   []string
	looks   int
	changed chan struct{} // closed at each change
	kick    func()
	work    sync.WaitGroup       // the actions that go on
	refuse  func(a Action) error // refuses an action; nil: none is refused
}

func newFleet(gpus int, models ...Model) *fleet {
	f := &fleet{changed: make(chan struct{}), kick: func() {}, drain: 10 * time.Second, gpus: world(gpus).GPUs}
	for _, m := range models {
		f.models = append(f.models, newInstance(m))
	}
	return f
}

func newInstance(m Model) *instance {
	m.Count = max(m.Count, 1)
	return &instance{Model: m, needs: cmp.Or(m.Bytes, 60*gib), start: 10 * time.Second, wake: 2 * time.Second, rest: time.Second}
}

// change tells everybody that an instance has changed. The lock is held.
func (f *fleet) change() {
	f.tell()
	f.kick()
}

// tell tells all but the scheduler that something has changed. The lock is held.
func (f *fleet) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// set changes a state. The lock is held.
func (f *fleet) set(i *instance, state launcher.State) {
	if i.State == launcher.Awake && state != launcher.Awake {
		i.leftAt = time.Now()
	}
	i.State, i.Since = state, time.Now()
	if state == "" { // there is no instance any more
		i.Since = time.Time{}
	}
	f.change()
}

func (f *fleet) find(model string) *instance {
	n := slices.IndexFunc(f.models, func(i *instance) bool { return i.Name == model && !i.removed })
	if n < 0 {
		return nil
	}
	return f.models[n]
}

func (f *fleet) Look() ([]GPU, []Model) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	var models []Model
	for _, i := range f.models {
		if !i.removed {
			models = append(models, i.Model)
		}
	}
	gpus := slices.Clone(f.gpus)
	for n := range gpus {
		for _, m := range models {
			if m.State == launcher.Sleeping && slices.Contains(m.On, gpus[n].UUID) {
				gpus[n].AsleepBytes += f.residue
			}
		}
	}
	return gpus, models
}

func (f *fleet) Do(ctx context.Context, a Action) error {
	done := make(chan error, 1)
	f.work.Go(func() { done <- f.carryOut(a) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// carryOut does what the launcher does for an action, as its own API or as a swap.
func (f *fleet) carryOut(a Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Kind, a.Model, strings.Join(a.Out, ","))))
	if f.refuse != nil {
		if err := f.refuse(a); err != nil {
			return err
		}
	}
	i := f.find(a.Model)
	if i == nil {
		return launcher.NotFound(a.Model)
	}
	out, err := f.claim(i, a)
	if err != nil {
		return err
	}
	if a.Kind == Start {
		i.On = a.GPUs
	}
	switch a.Kind {
	case Stop:
		return f.end(i)
	case Sleep:
		return f.layDown(i)
	case Start, Wake:
	}
	defer f.release(i)
	if err := f.layAllDown(out); err != nil {
		return err
	}
	return f.bringUp(i, a.Kind)
}

// claim checks an action as the launcher's ledger does, and claims its models. It returns those
// that leave. The lock is held.
func (f *fleet) claim(i *instance, a Action) (out []*instance, err error) {
	comesIn := a.Kind == Start || a.Kind == Wake
	for _, o := range f.models {
		if o != i && comesIn && len(a.Out) > 0 && o.State == launcher.Awake && slices.ContainsFunc(a.GPUs, func(g string) bool { return slices.Contains(o.On, g) }) {
			out = append(out, o)
		}
	}
	for _, o := range append(slices.Clone(out), i) {
		if o.isChanging() {
			return nil, launcher.Conflictf("%s is %s", o.Name, o.State)
		}
	}
	if a.Kind == Wake && i.State != launcher.Sleeping || a.Kind == Start && i.State != "" && !i.State.Ended() || a.Kind == Sleep && i.State != launcher.Awake {
		return nil, launcher.Conflictf("%s is %s", i.Name, i.State)
	}
	for n := range f.gpus {
		if g := f.gpus[n]; comesIn && slices.Contains(a.GPUs, g.UUID) {
			if used := i.needs + g.ForeignBytes + f.awakeBytes(g.UUID, append(out, i)); used > g.TotalBytes {
				return nil, &launcher.Error{Code: launcherapi.CodeDoesNotFit, Detail: fmt.Sprintf("GPU %s has %d GiB, %d would be used: %s", g.UUID, g.TotalBytes/gib, used/gib, f.states())}
			}
		}
	}
	for _, o := range append(slices.Clone(out), i) {
		o.Busy = true
	}
	return out, nil
}

// awakeBytes returns what instances hold of a GPU, but for some and for sleepers that end. The
// lock is held.
func (f *fleet) awakeBytes(uuid string, but []*instance) (bytes uint64) {
	for _, o := range f.models {
		if (o.State == launcher.Awake || o.State.Moving() && o.State != launcher.Stopping) && slices.Contains(o.On, uuid) && !slices.Contains(but, o) {
			bytes += o.needs
		}
	}
	return bytes
}

func (f *fleet) release(i *instance) {
	i.Busy = false
	f.change()
}

// pause lets time pass without the lock, and reports whether the instance is still in its state.
func (f *fleet) pause(i *instance, d time.Duration) error {
	state := i.State
	f.mu.Unlock()
	<-time.After(d)
	f.mu.Lock()
	if i.State != state || i.removed {
		return launcher.EngineFailedf("%s has ended", i.Name)
	}
	return nil
}

// layDown drains an instance and has it sleep. The lock is held.
func (f *fleet) layDown(i *instance) error {
	defer f.release(i)
	if i.State != launcher.Awake {
		return launcher.EngineFailedf("%s has ended", i.Name)
	}
	f.set(i, launcher.FallingAsleep)
	for deadline := time.After(f.drain); i.InFlight > 0 && i.State == launcher.FallingAsleep; {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
			f.mu.Lock()
			continue
		case <-deadline:
		}
		f.mu.Lock()
		break
	}
	if i.State != launcher.FallingAsleep {
		return launcher.EngineFailedf("%s has ended", i.Name)
	}
	if err := f.pause(i, i.rest); err != nil {
		return err
	}
	f.set(i, launcher.Sleeping)
	return nil
}

// layAllDown has instances sleep side by side. The lock is held.
func (f *fleet) layAllDown(all []*instance) error {
	errs := make([]error, len(all))
	var tasks sync.WaitGroup
	for n, i := range all {
		tasks.Go(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			errs[n] = f.layDown(i)
		})
	}
	f.mu.Unlock()
	tasks.Wait()
	f.mu.Lock()
	return errors.Join(errs...)
}

func (f *fleet) bringUp(i *instance, kind Kind) error {
	if i.removed {
		return launcher.NotFound(i.Name)
	}
	state, takes := launcher.Waking, i.wake
	if kind == Start {
		state, takes = launcher.Starting, i.start
	}
	f.set(i, state)
	if err := f.pause(i, takes); err != nil {
		return err
	}
	if i.failing > 0 {
		i.failing--
		f.set(i, launcher.Failed)
		return launcher.EngineFailedf("%s cannot start", i.Name)
	}
	f.set(i, launcher.Awake)
	return nil
}

func (f *fleet) end(i *instance) error {
	defer f.release(i)
	f.set(i, launcher.Stopping)
	if err := f.pause(i, i.rest); err != nil {
		return err
	}
	i.On, i.Retired = nil, false
	f.set(i, "")
	return nil
}

// kill ends an engine.
func (f *fleet) kill(i *instance) {
	if i.State != "" && !i.State.Ended() {
		f.set(i, launcher.Failed)
	}
}

// answer has a model answer a request, which its gate holds until it is awake. It reports whether
// it was answered.
func (f *fleet) answer(i *instance, takes time.Duration, gone <-chan struct{}) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold(i, gone)
	if i.State != launcher.Awake {
		return false
	}
	i.InFlight++
	defer func() {
		i.InFlight--
		i.LastUsed = time.Now()
		f.tell() // the launcher publishes no event for an answer
	}()
	for deadline := time.After(takes); i.State == launcher.Awake || i.State == launcher.FallingAsleep; {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
			f.mu.Lock()
			continue
		case <-deadline:
			f.mu.Lock()
			return true
		case <-gone:
		}
		f.mu.Lock()
		return false
	}
	return false
}

// hold waits at the gate of an instance. The lock is held.
func (f *fleet) hold(i *instance, gone <-chan struct{}) {
	i.Held++
	defer func() { i.Held-- }()
	for i.State != launcher.Awake && i.State != "" && !i.State.Ended() && !i.removed {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
			f.mu.Lock()
		case <-gone:
			f.mu.Lock()
			return
		}
	}
}

// states tells how the instances are. The lock is held.
func (f *fleet) states() (text string) {
	for _, i := range f.models {
		if i.State != "" && !i.removed {
			text += fmt.Sprintf("%s %s on %v; ", i.Name, i.State, i.On)
		}
	}
	return text
}
