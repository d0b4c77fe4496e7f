package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// runner starts processes on the machine, and finds them.
type runner struct{ l *life }

func (r runner) Start(c process.Command) (supervisor.Tree, error) {
	if err := r.l.call("start " + c.Name); err != nil {
		return nil, err
	}
	defer r.l.effected()
	r.l.w.checkInstanceWritten(c.Name)
	wakes := r.l.checkStartedAgain(c.Name)
	if wakes {
		time.Sleep(r.l.m.take("start of "+c.Name, 400*time.Millisecond))
		if r.l.isDead() {
			return nil, errDead
		}
	}
	running, err := engine.NewVLLM(engine.VLLMOptions{}).Running(c.Args, c.Env)
	if err != nil {
		panic(err)
	}
	m := r.l.m
	m.mu.Lock()
	if m.starved {
		m.mu.Unlock()
		return nil, errNoDescriptors
	}
	m.nextPID++
	p := &proc{
		m: m, pid: m.nextPID, name: c.Name, mark: r.l.mark, model: running.ServedNames[0], reads: running.Model, argv: c.Args, env: marked(c.Env, r.l.mark, c.Name), port: running.Port,
		need: map[string]uint64{}, done: make(chan struct{}), birth: time.Now(), since: time.Now(),
	}
	for _, index := range running.Devices {
		uuid := "g" + index
		p.gpus = append(p.gpus, uuid)
		p.need[uuid] = running.DeviceMemory.Of(80 * gib)
	}
	p.be(m.odd[p.model])
	if wakes {
		p.startAgain()
	}
	m.procs[p.pid] = p
	if time.Until(m.logsStalled) > 0 {
		p.silence(m.logsStalled)
	}
	m.mu.Unlock()
	r.l.w.started(p, wakes)
	go p.load()
	return &tree{r.l, p}, nil
}

// errNoDescriptors is what the kernel says when a process has no descriptor left.
var errNoDescriptors = fmt.Errorf("cannot open a process: %w", syscall.EMFILE)

// be makes an engine odd. The lock is held.
func (p *proc) be(odd string) {
	switch odd {
	case "liar":
		p.liar = true
	case "refusing":
		p.refusing = true
	case "stubborn":
		p.stubborn = true
	case "dies of its first call":
		p.crashNext = true
	}
	p.troubled = p.troubled || odd != "" && odd != "stubborn"
}

// load has the engine load its model and serve, or die for want of memory.
func (p *proc) load() {
	p.m.mu.Lock()
	extra, dies := p.m.loading, p.m.odd[p.model] == "dies while it loads"
	p.m.mu.Unlock()
	for wait := time.Second + extra + p.m.take("load "+p.name, 4*time.Second); wait > 0; wait = p.untilItLogs() {
		select {
		case <-time.After(wait):
		case <-p.done:
			return
		}
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	switch {
	case !p.alive():
	case dies:
		p.fail()
	case !p.reserve(1):
		p.starve()
	default:
		p.ready, p.since = true, time.Now()
	}
}

// fail has the engine die of an error. The lock is held.
func (p *proc) fail() {
	code := 1
	p.troubled = true
	p.end(process.Exit{Code: &code})
}

// starve has the engine die for want of device memory, which nobody but a stranger,
// or an engine that does not do what it is told, may bring about. The lock is held.
func (p *proc) starve() {
	if !p.asked && !p.m.excused(p.gpus) {
		p.m.violated(onlyWhatFitsIsAwake, "%s has no room on %v", p.name, p.gpus)
	}
	p.fail()
}

// excused says whether something was wrong by which the memory of GPUs may be
// another than the launcher can know. The lock is held.
func (m *machine) excused(gpus []string) bool {
	for _, uuid := range gpus {
		if m.ever["stranger "+uuid] {
			return true
		}
		for _, p := range m.procs {
			if p.held[uuid] > 0 && p.troubled {
				return true
			}
		}
	}
	return m.ever["blind"] || m.ever["memory is lost"] || m.ever["driver hangs"]
}

func (r runner) Adopt(name string, id process.ID) (supervisor.Tree, error) {
	if err := r.l.call("adopt " + name); err != nil {
		return nil, err
	}
	if r.l.m.isStarved() {
		return nil, errNoDescriptors
	}
	r.l.m.touches("adopts", func(s *stranger) bool { return s.pid == id.PID })
	p, err := r.l.m.find(id.PID)
	if err != nil {
		return nil, &process.GoneError{Name: name, ID: id}
	}
	if r.l.m.isToEnd(p) { // it may be gone before the supervisor goes on
		time.Sleep(r.l.m.take("adopt "+name, 800*time.Millisecond))
	}
	return &tree{r.l, p}, nil
}

// isToEnd says whether a process was told to end.
func (m *machine) isToEnd(p *proc) bool { m.mu.Lock(); defer m.mu.Unlock(); return p.asked }

func (m *machine) isStarved() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.starved }

func (r runner) Find() ([]process.Found, error) {
	if r.l.isDead() {
		return nil, errDead
	}
	r.l.m.mu.Lock()
	defer r.l.m.mu.Unlock()
	var all []process.Found
	for _, p := range r.l.m.living() {
		all = append(all, process.Found{Name: p.name, Root: p.id(), PIDs: []int{p.pid}})
	}
	for _, stranger := range r.l.m.strangers {
		name := stranger.tree(r.l.mark)
		n := slices.IndexFunc(all, func(f process.Found) bool { return f.Name == name })
		switch {
		case name == "":
		case n < 0:
			all = append(all, process.Found{Name: name, Root: stranger.id(), PIDs: []int{stranger.pid}})
		default:
			all[n].PIDs = append(all[n].PIDs, stranger.pid)
		}
	}
	for _, h := range r.l.m.helpers {
		if h.alive() {
			all = append(all, process.Found{Name: h.name, PIDs: []int{h.pid}})
		}
	}
	return all, nil
}

func (r runner) Owners() (map[int]string, error) {
	if r.l.isDead() {
		return nil, errDead
	}
	r.l.m.mu.Lock()
	defer r.l.m.mu.Unlock()
	all := map[int]string{}
	for _, p := range r.l.m.living() {
		all[p.pid] = p.name
	}
	for _, stranger := range r.l.m.strangers {
		if name := stranger.tree(r.l.mark); name != "" {
			all[stranger.pid] = name
		}
	}
	return all, nil
}

func (r runner) Clear(ctx context.Context, name string) error {
	if err := r.l.call("clear " + name); err != nil {
		return err
	}
	if strings.HasPrefix(name, process.HelperPrefix) {
		r.l.m.mu.Lock()
		defer r.l.m.mu.Unlock()
		if !r.l.m.endHelpers(name) {
			return errNoDescriptors
		}
		return nil
	}
	r.l.m.touches("kills", func(s *stranger) bool { return s.tree(r.l.mark) == name })
	r.l.m.mu.Lock()
	var all []*proc
	for _, p := range r.l.m.living() {
		if p.name == name {
			all = append(all, p)
		}
	}
	r.l.m.mu.Unlock()
	for _, p := range all {
		if err := (&tree{r.l, p}).Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tree is a process as one life of the launcher has it.
type tree struct {
	l *life
	p *proc
}

func (t *tree) ID() process.ID        { return t.p.id() }
func (t *tree) Done() <-chan struct{} { return t.p.done }
func (t *tree) Exit() process.Exit    { return t.p.exit }

func (t *tree) Pids() []int {
	if t.p.alive() {
		return []int{t.p.pid}
	}
	return nil
}

func (t *tree) Stop(ctx context.Context, grace time.Duration) error {
	if err := t.l.call("stop " + t.p.name); err != nil {
		return err
	}
	if t.p.m.isStarved() {
		return errNoDescriptors
	}
	t.checkShut()
	t.l.w.ended(t.p)
	t.p.m.mu.Lock()
	t.p.asked = true
	stubborn := t.p.stubborn || t.p.immortal
	t.p.m.mu.Unlock()
	if !stubborn {
		go func() {
			time.Sleep(t.p.m.take("end "+t.p.name, 800*time.Millisecond))
			t.p.m.mu.Lock()
			defer t.p.m.mu.Unlock()
			t.p.end(signalled(syscall.SIGTERM))
		}()
	}
	t.l.effected()
	select {
	case <-t.p.done:
		return nil
	case <-time.After(grace):
		return t.Kill(ctx)
	case <-ctx.Done():
		return ctx.Err()
	case <-t.l.died:
		return errDead
	}
}

func (t *tree) Kill(ctx context.Context) error {
	if err := t.l.call("kill " + t.p.name); err != nil {
		return err
	}
	if t.p.m.isStarved() {
		return errNoDescriptors
	}
	t.l.w.ended(t.p)
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		t.p.m.mu.Lock()
		t.p.asked = true
		if !t.p.immortal {
			t.p.end(signalled(syscall.SIGKILL))
		}
		alive := t.p.alive()
		t.p.m.mu.Unlock()
		if !alive {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-t.p.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-t.l.died:
			return errDead
		}
	}
}
