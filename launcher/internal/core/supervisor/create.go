package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Draft is a create call that was read and found valid, and has changed nothing yet.
type Draft struct {
	ID   string
	Want launcher.Room

	create   launcher.CreateRequest
	engine   engine.Engine
	plan     engine.Plan
	secrets  secrets.Set
	local    modelSource
	compiles string    // name of what the engine compiles; empty: nothing that is cached
	method   string    // launcherapi.StartAuto, …Exec or …Fork
	ports    []int     // leased for the instance
	again    *instance // the ended instance that it describes anew; nil: the request describes the instance
}

// Draft reads a create call: engine, GPUs, arguments, environment. It changes nothing,
// except that it may start a preloader if the request insists on a fork. The error of
// an invalid request has code invalid.
func (s *Supervisor) Draft(c launcher.CreateRequest) (*Draft, error) { return s.draft(c, true) }

// draft is Draft, which need not insist on a model that the store lacks.
func (s *Supervisor) draft(c launcher.CreateRequest, insist bool) (*Draft, error) {
	if c.ID == "" {
		c.ID = uuid.NewString()
	}
	if !launcherapi.IsID(c.ID) || c.ID == "watch" { // GET …/instances/watch is the stream of events, not an instance
		return nil, launcher.Invalidf("path.id", "instance id %q is not allowed; it begins with a letter or digit, then has letters, digits, '.', '_' or '-', is at most 128 characters long, and is not \"watch\"", c.ID)
	}
	eng, err := s.engine(c.Spec.Engine)
	if err != nil {
		return nil, err
	}
	if s.opts.Programs[eng.Name()] == nil {
		return nil, launcher.Invalidf("body.engine", "this launcher has no program for the engine %s; install it, or name its program in the configuration of the launcher", eng.Name())
	}
	devices, err := s.devices("body.gpu_uuids", c.Spec.GPUUUIDs)
	if err != nil {
		return nil, err
	}
	ports := s.opts.Leases.Of(c.ID)
	placed, err := s.rankOf(c, ports)
	if err != nil {
		return nil, err
	}
	spec, err := putLate(c, ports, placed)
	if err != nil {
		return nil, err
	}
	env, hidden, err := secrets.Environment(spec.EnvVars, s.opts.EnvFileDirs)
	if err != nil {
		return nil, err
	}
	memory, err := gpuMemory(spec)
	if err != nil {
		return nil, err
	}
	request := engine.Request{
		Options: spec.Options, Args: spec.Args, GPUs: engineGPUs(devices), Env: env,
		Accelerator: s.opts.GPUs.Kind(), InstanceHost: s.opts.InstanceHost, SleepMode: s.opts.SleepMode,
		BaseEnv: s.opts.Environ, ExtraEnv: s.opts.GPUs.Env(), Rank: placed, ServedName: c.Spec.Annotations[launcherapi.AnnotationModel], GPUMemory: memory, SaveDir: s.saveDir(c.ID),
	}
	plan, err := eng.Plan(request)
	hidden.Find(spec, plan.ConfigWords)
	if err != nil {
		return nil, invalidInput(err, hidden)
	}
	if slices.Contains(ports, plan.PublicPort) {
		return nil, launcher.Invalidf("body", "--port %d is a leased port, which the engine uses by itself; leave out --port, and the launcher chooses the public port", plan.PublicPort)
	}
	where, err := s.locate(spec, env, &plan)
	switch {
	case err == nil:
	case insist || !modelstore.Absent(err):
		return nil, invalidInput(err, hidden)
	default:
		plan.DeviceMemory.Bytes = 0 // the model's size is not known
	}
	method, err := s.startMethod(c, eng, plan)
	if err != nil {
		return nil, err
	}
	want := launcher.Room{ID: c.ID, New: true, Bytes: bytesOf(plan, devices)}
	return &Draft{ID: c.ID, Want: want, create: c, engine: eng, plan: plan, secrets: hidden, local: where, compiles: s.compileKey(&plan, compilesOf(eng, request, plan, c.Spec, ports), devices), method: method, ports: ports}, nil
}

// Plan returns how many GPUs an instance needs, and how much memory of each, and starts nothing. If
// the description names no GPUs, the memory is that of the first one. The store may lack the model,
// which can be pulled later: unless the memory is a share of the GPU's, it is 0 then.
func (s *Supervisor) Plan(spec launcherapi.InstanceSpec) (gpus int, bytes uint64, err error) {
	d, err := s.draft(launcher.CreateRequest{Spec: spec, DryRun: true}, false)
	if err != nil {
		return 0, 0, err
	}
	for _, device := range s.opts.GPUs.Devices() {
		if len(spec.GPUUUIDs) == 0 || slices.Contains(spec.GPUUUIDs, device.UUID) {
			bytes = max(bytes, d.plan.DeviceMemory.Of(device.MemoryTotalBytes))
			break
		}
	}
	return d.plan.GPUs(), bytes, nil
}

// DraftAgain reads the create call of an instance that has ended once more.
func (s *Supervisor) DraftAgain(id string, dryRun bool) (*Draft, error) {
	s.mu.Lock()
	i, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if secrets.Missing(i.facts.Spec) { // the spec never changes
		return nil, launcher.Conflictf("cannot start instance %s again: the launcher does not keep the secrets of its request; describe the instance in the request, with in.id in place of in.instance_id", id)
	}
	d, err := s.Draft(launcher.CreateRequest{ID: id, Spec: i.facts.Spec, DryRun: dryRun})
	if err != nil {
		return nil, err
	}
	d.again = i
	return d, nil
}

// isOutdated reports whether the ended instance that a draft describes anew has been
// forgotten or replaced since. The lock is held.
func (s *Supervisor) isOutdated(d *Draft) bool {
	return d != nil && d.again != nil && !s.isListed(d.again)
}

func invalidInput(err error, hidden secrets.Set) error {
	input, ok := errors.AsType[*engine.InputError](err)
	if !ok {
		return err
	}
	return launcher.Invalidf("body."+input.Field, "%s", hidden.Hide(input.Message))
}

func (s *Supervisor) engine(name string) (engine.Engine, error) {
	if name == "" {
		return s.opts.Engines[0], nil
	}
	if e, ok := s.engines[name]; ok {
		return e, nil
	}
	var names []string
	for _, e := range s.opts.Engines {
		names = append(names, strconv.Quote(e.Name()))
	}
	return nil, launcher.Invalidf("body.engine", "unknown engine %q; there is %s", name, strings.Join(names, ", "))
}

// devices returns the GPUs with those UUIDs, in that order. field is the field of the
// request that names them.
func (s *Supervisor) devices(field string, uuids []string) ([]gpu.Device, error) {
	known := s.opts.GPUs.Devices()
	var out []gpu.Device
	seen := map[string]bool{}
	for n, id := range uuids {
		where := fmt.Sprintf("%s[%d]", field, n)
		if seen[id] {
			return nil, launcher.Invalidf(where, "gpu_uuids names GPU %s twice", id)
		}
		seen[id] = true
		d, ok := deviceOf(known, id)
		if !ok {
			return nil, launcher.Invalidf(where, "unknown GPU UUID %q; this node has %s", id, uuidList(known))
		}
		out = append(out, d)
	}
	return out, nil
}

func deviceOf(devices []gpu.Device, id string) (gpu.Device, bool) {
	for _, d := range devices {
		if d.UUID == id {
			return d, true
		}
	}
	return gpu.Device{}, false
}

func uuidList(devices []gpu.Device) string {
	ids := make([]string, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, d.UUID)
	}
	return strings.Join(ids, ", ")
}

func engineGPUs(devices []gpu.Device) []engine.GPU {
	out := make([]engine.GPU, 0, len(devices))
	for _, d := range devices {
		out = append(out, engine.GPU{UUID: d.UUID, Index: d.Index, MIG: d.MIG})
	}
	return out
}

// Create makes an instance and starts its engine. It returns in state starting, as soon
// as the process runs or the start has to wait; watchers get the rest as events. A
// refused call leaves nothing behind.
//
//	state of the id                  effect
//	no such id                       a new instance, starting
//	stopped or failed, and released  a new instance in its place, starting
//	any other                        error, code exists
func (s *Supervisor) Create(c launcher.CreateRequest) (launcherapi.Instance, error) {
	d, err := s.Draft(c)
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.start(d, nil)
}

// start makes the instance of a draft and starts its engine. c is the claim of the swap
// that creates the instance; nil: a client creates it.
func (s *Supervisor) start(d *Draft, c *Claim) (launcherapi.Instance, error) {
	i, err := s.admit(d, c)
	if err != nil {
		s.countRefusal(err)
		return launcherapi.Instance{}, err
	}
	err = s.lease(d)
	if err == nil && c == nil { // a claim has taken them
		err = s.takeLeasedPorts(d)
	}
	if err == nil {
		err = s.openOrTakePorts(i, d, c)
	}
	if err != nil {
		s.undoCreate(i)
		s.countRefusal(err)
		return launcherapi.Instance{}, err
	}
	return s.launch(i, d)
}

// admit takes the id and the room for the instance. A swap's new instance has its place
// under max_instances since the swap's admission.
func (s *Supervisor) admit(d *Draft, c *Claim) (*instance, error) {
	memory := s.lockWithMemory(d.create.Spec.GPUUUIDs)
	defer s.mu.Unlock()
	if s.closing {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	want := d.Want
	if c != nil {
		want.SwapID, want.New = c.plan.SwapID, c.room == nil || !c.room.New
	}
	if s.isOutdated(d) {
		return nil, launcher.Conflictf("instance %s was deleted while the swap brought it in", d.ID)
	}
	if err := s.checkIDFree(d.ID, c); err != nil {
		return nil, err
	}
	if err := s.checkPortFree(d.plan.PublicPort, c); err != nil {
		return nil, err
	}
	if err := s.checkNotInSwap(d.create.Spec.GPUUUIDs, want.SwapID); err != nil {
		return nil, err
	}
	if err := ledger.Admit(s.world(memory), want); err != nil {
		return nil, err
	}
	now, redacted := time.Now(), d.secrets.Redact(d.create.Spec)
	if s.opts.LLMDCompat {
		redacted = withDevices(redacted, d.plan.Env())
	}
	i := &instance{
		facts: facts{
			ID: d.ID, Mark: s.opts.Mark, Spec: redacted, Model: d.plan.Model, ServedNames: d.plan.ServedNames,
			PublicHost: d.plan.PublicHost, PublicPort: d.plan.PublicPort, Expected: want.Bytes, MadeBy: want.SwapID,
			Local: d.local, Compiles: d.compiles, Ports: d.ports, StartedAgain: c != nil && s.instances[d.ID] != nil,
		},
		engine: d.engine, apiKey: d.plan.APIKey, secrets: d.secrets,
		state: launcher.Starting, created: now, since: now, lastWoken: now,
		swapID: want.SwapID, publishedSwapID: want.SwapID, gateHeldShut: c != nil,
		levelOnDisk: 1, // for want of another
		replaces:    s.instances[d.ID],
		changed:     make(chan struct{}), whenReleased: make(chan struct{}),
	}
	if i.restarts() {
		i.draft = d
	}
	s.instances[d.ID] = i
	if c != nil {
		c.in, c.room = i, nil // from now on the ledger counts the instance itself
	}
	return i, nil
}

// checkNotInSwap refuses GPUs on which a swap other than swapID has its turn. The lock
// is held.
func (s *Supervisor) checkNotInSwap(uuids []string, swapID string) error {
	for _, id := range uuids {
		if holder := s.opts.Turns.Holder(id); holder != "" && holder != swapID {
			return launcher.Conflictf("swap %s is using GPU %s; try again when it is over, or ask for a swap, which waits for its turn", holder, id)
		}
	}
	return nil
}

// openOrTakePorts opens the ports of a new instance, or takes over those that the
// instance's swap has opened.
func (s *Supervisor) openOrTakePorts(i *instance, d *Draft, c *Claim) error {
	var opened ports
	if c != nil {
		s.mu.Lock()
		opened, c.ports = c.ports, ports{}
		s.mu.Unlock()
	}
	if opened.gate == nil && !d.plan.IsWorker() {
		var err error
		if opened, err = s.openPorts(d); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.private, i.gate = opened.private, opened.gate
	s.setGate(i)
	i.facts.EngineSocket, i.facts.KeepAlive = opened.socket, d.plan.KeepAlive
	if opened.gate != nil {
		i.facts.PublicPort = opened.gate.Port()
	}
	if opened.private != nil {
		i.facts.EnginePort = opened.private.Port()
	}
	return nil
}

// undoCreate undoes admit, lease, takeLeasedPorts and openOrTakePorts.
func (s *Supervisor) undoCreate(i *instance) {
	s.unlease(i.facts.ID, i, nil)
	s.opts.Leases.End(i.facts.ID)
	s.mu.Lock()
	held := i.takePorts()
	delete(s.instances, i.facts.ID)
	if before := i.replaces; before != nil {
		s.instances[i.facts.ID] = before
		s.write(before) // the new one may have been written in its place
		if i.deleting {
			s.forget(before)
		}
	} else if i.record != nil {
		s.write(i) // its record may be written yet, once the disk answers again
	}
	i.notify()
	s.mu.Unlock()
	s.closeUnusedPorts(i.facts.ID, held)
}

// watchExit waits in the background for the exit of the instance's process. The lock is
// held.
func (s *Supervisor) watchExit(i *instance) {
	tree, name, told := i.tree, i.facts.LogName, make(chan struct{})
	i.exitHandled = told
	s.spawn(func() {
		defer close(told)
		select {
		case <-tree.Done():
			s.onExited(i, tree.Exit(), s.longTail(name))
		case <-s.ctx.Done():
		}
	})
}
