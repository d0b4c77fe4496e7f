package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
)

// runner starts processes on the machine, and finds them.
type runner struct{ l *life }

func (r runner) Start(c process.Command) (supervisor.Tree, error) {
	if err := r.l.call("start " + c.Name); err != nil {
		return nil, err
	}
	defer r.l.effected()
	running, err := engine.NewVLLM(engine.VLLMOptions{}).Running(c.Args, c.Env)
	if err != nil {
		panic(err)
	}
	m := r.l.m
	m.mu.Lock()
	m.nextPID++
	p := &proc{m: m, pid: m.nextPID, name: c.Name, argv: c.Args, env: c.Env, port: running.Port, need: map[string]uint64{}, done: make(chan struct{})}
	for _, index := range running.Devices {
		uuid := "g" + index
		p.gpus = append(p.gpus, uuid)
		p.need[uuid] = uint64(running.GPUMemoryUtilization * float64(80*gib))
	}
	m.procs[p.pid] = p
	m.mu.Unlock()
	r.l.w.started(p)
	go p.load()
	return &tree{r.l, p}, nil
}

// load has the engine load its model and serve, or die for want of memory.
func (p *proc) load() {
	select {
	case <-time.After(time.Second + p.m.take("load "+p.name, 4*time.Second)):
	case <-p.done:
		return
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if !p.alive() {
		return
	}
	if !p.reserve() {
		p.starve()
		return
	}
	p.ready = true
}

// starve has the engine die for want of device memory, which nobody but a stranger
// may bring about. The lock is held.
func (p *proc) starve() {
	foreign := p.m.late > 0 || p.m.blind
	for _, uuid := range p.gpus {
		foreign = foreign || p.m.strange[uuid] > 0
	}
	if !foreign && !p.asked {
		p.m.broken = append(p.m.broken, fmt.Sprintf("%s has no room on %v", p.name, p.gpus))
	}
	code := 1
	p.end(process.Exit{Code: &code})
}

func (r runner) Adopt(name string, id process.ID) (supervisor.Tree, error) {
	if err := r.l.call("adopt " + name); err != nil {
		return nil, err
	}
	p, err := r.l.m.find(id.PID)
	if err != nil {
		return nil, &process.GoneError{Name: name, ID: id}
	}
	return &tree{r.l, p}, nil
}

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
	return all, nil
}

func (r runner) Clear(ctx context.Context, name string) error {
	if err := r.l.call("clear " + name); err != nil {
		return err
	}
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

// simEngine is vLLM as the launcher talks to it. What it was asked it does, also
// when nobody waits for the answer any more.
type simEngine struct {
	l *life
	*engine.VLLM
}

func (e *simEngine) Close() { e.VLLM.Close() }

func portOf(base string) int {
	port, err := strconv.Atoi(base[strings.LastIndex(base, ":")+1:])
	if err != nil {
		panic(err)
	}
	return port
}

// ask has the engine at base do something after a time, and waits for that.
func (e *simEngine) ask(ctx context.Context, what, base string, most time.Duration, do func(p *proc) error) error {
	if err := e.l.call(what); err != nil {
		return err
	}
	m := e.l.m
	took := time.Millisecond + m.take(what+" "+base, most)
	answer := make(chan error, 1)
	go func() {
		time.Sleep(took)
		m.mu.Lock()
		defer m.mu.Unlock()
		p := m.at(portOf(base))
		switch {
		case p == nil || !p.ready:
			answer <- &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		case p.deaf:
		case p.crashNext:
			p.end(signalled(syscall.SIGSEGV))
			answer <- errors.New("the connection broke off")
		default:
			answer <- do(p)
		}
	}()
	defer e.l.effected()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-e.l.died:
		return errDead
	}
}

func (e *simEngine) Ready(ctx context.Context, base string) error {
	return e.ask(ctx, "health", base, time.Millisecond, func(*proc) error { return nil })
}

func (e *simEngine) IsSleeping(ctx context.Context, base string) (sleeping bool, err error) {
	err = e.ask(ctx, "is sleeping", base, 5*time.Millisecond, func(p *proc) error { sleeping = p.level > 0; return nil })
	return sleeping, err
}

func (e *simEngine) Sleep(ctx context.Context, base string, level int, check bool) error {
	for g := range e.l.gatesTo(portOf(base)) {
		if g.isOpen() && !e.l.isDead() {
			e.l.m.wrong("%s is put to sleep, and its gate is open", g.id)
		}
	}
	return e.ask(ctx, "sleep", base, 800*time.Millisecond, func(p *proc) error {
		switch {
		case p.refusing:
			return &engine.StatusError{Call: "POST /sleep", Status: 500}
		case p.liar && check:
			return errors.New("it says that it sleeps, and does not")
		case p.liar || p.level > 0:
			return nil
		}
		p.level = level
		left := map[string]uint64{}
		for uuid := range p.need {
			left[uuid] = gib
		}
		go p.giveBack(p.m.take("memory of "+p.name, 500*time.Millisecond), left)
		return nil
	})
}

func (e *simEngine) Wake(ctx context.Context, base string, level int, check bool) error {
	return e.ask(ctx, "wake", base, 800*time.Millisecond, func(p *proc) error {
		switch {
		case p.refusing:
			return &engine.StatusError{Call: "POST /wake_up", Status: 500}
		case p.level == 0:
			return nil
		case p.liar && check:
			return errors.New("it says that it is awake, and is not")
		case p.liar:
			return nil
		case !p.reserve():
			p.starve()
			return errors.New("the connection broke off")
		}
		p.garbage = p.garbage || level < p.level
		p.level = 0
		return nil
	})
}

func (e *simEngine) Canary(ctx context.Context, base, _ string, _ engine.Secret) error {
	return e.ask(ctx, "canary", base, 50*time.Millisecond, func(p *proc) error {
		if p.level > 0 {
			return errors.New("it sleeps")
		}
		return nil
	})
}

// gatesTo are the gates before a port.
func (l *life) gatesTo(port int) map[*gate]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[*gate]bool{}
	for g := range l.gates {
		if g.target == port {
			out[g] = true
		}
	}
	return out
}
