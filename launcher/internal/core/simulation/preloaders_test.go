package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// helper is the process of a preloader. It outlives the launcher that made it, until
// the next one ends it.
type helper struct {
	name string
	pid  int
	done chan struct{}
}

func (h *helper) alive() bool {
	select {
	case <-h.done:
		return false
	default:
		return true
	}
}

// endHelpers ends the helpers of a name, all with the name "". false: that cannot be
// done now. The lock is held.
func (m *machine) endHelpers(name string) bool {
	if m.starved {
		return false
	}
	for _, h := range m.helpers {
		if h.alive() && (name == "" || h.name == name) {
			close(h.done)
		}
	}
	return true
}

// startHelper makes the process of a preloader. nil: there can be none now.
func (m *machine) startHelper(name string) *helper {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starved {
		return nil
	}
	m.nextPID++
	h := &helper{name: name, pid: m.nextPID, done: make(chan struct{})}
	m.helpers = append(m.helpers, h)
	return h
}

// preloading is how preloaders are now: "" well, "fail" or "hang".
func (m *machine) preloading() string { m.mu.Lock(); defer m.mu.Unlock(); return m.preloaders }

// preloadVariable is the variable whose value a preloader must have been loaded with to
// be forked for an engine.
const preloadVariable = "OMP_NUM_THREADS"

// forkTime bounds the wait for a preloader's turn, and that for its answer.
const forkTime = 2 * time.Second

// forker is a launcher's pool of preloaders. It stands for package preload, which
// talks with real processes over sockets, and does what [supervisor.Forker] says of
// the pool: one preloader for each value of preloadVariable, which loads, may fail or
// hang, is begun anew when somebody needs it, and ends with its launcher.
type forker struct {
	l *life

	mu  sync.Mutex
	all map[string]*preloader // by value
}

type preloader struct {
	h      *helper
	over   chan struct{} // closed when it has loaded or failed
	failed bool
	ready  bool
}

func newForker(l *life) *forker { return &forker{l: l, all: map[string]*preloader{}} }

func (*forker) Never() string { return "" }

func valueIn(env []string) string {
	for _, variable := range env {
		if value, ok := strings.CutPrefix(variable, preloadVariable+"="); ok {
			return value
		}
	}
	return ""
}

var (
	errNotReady  = errors.New("the preloader is loading")
	errNoneBegun = errors.New("no preloader is ready for the instance's environment")
	errFailed    = errors.New("the preloader failed")
)

// pick is the preloader for an environment. Where there is none, or the one that was
// has failed or ended, one is begun.
func (f *forker) pick(env []string) (*preloader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	value := valueIn(env)
	p := f.all[value]
	switch {
	case p == nil, p.ready && !p.h.alive():
		p = f.begin(value)
		return p, errNoneBegun
	case p.failed:
		delete(f.all, value) // the next who needs it begins it anew
		return p, errFailed
	case !p.ready:
		return p, errNotReady
	}
	return p, nil
}

// begin has a preloader load. The lock is held.
func (f *forker) begin(value string) *preloader {
	p := &preloader{over: make(chan struct{})}
	f.all[value] = p
	name := fmt.Sprintf("%spreloader-%s", process.HelperPrefix, value)
	if f.l.call("start "+name) == nil {
		p.h = f.l.m.startHelper(name)
		f.l.effected()
	}
	if p.h == nil {
		p.failed = true
		close(p.over)
		return p
	}
	go f.load(p, name)
	return p
}

func (f *forker) load(p *preloader, name string) {
	how := f.l.m.preloading()
	took := time.Second + f.l.m.take("load "+name, 12*time.Second)
	if how == "hang" {
		took = time.Hour
	}
	select {
	case <-time.After(took):
	case <-p.h.done:
	case <-f.l.died:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.failed = how != "" || !p.h.alive() || f.l.isDead()
	p.ready = !p.failed
	if p.failed {
		f.end(p.h)
	}
	close(p.over)
}

// end ends the process of a preloader, if its launcher lives.
func (f *forker) end(h *helper) {
	if f.l.isDead() {
		return
	}
	f.l.m.mu.Lock()
	defer f.l.m.mu.Unlock()
	if h.alive() {
		close(h.done)
	}
}

func (f *forker) Check(env []string) error { _, err := f.pick(env); return err }

func (f *forker) Look(env []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.all[valueIn(env)]; p == nil || !p.ready || !p.h.alive() {
		return errNoneBegun
	}
	return nil
}

func (f *forker) Awaits(env []string) string {
	if p, err := f.pick(env); err == nil || p.failed {
		return ""
	}
	return "waits for a preloader"
}

// longestWait is how long a start waits for a preloader.
const longestWait = 20 * time.Second

func (f *forker) Await(ctx context.Context, env []string, told func(string)) error {
	p, err := f.pick(env)
	if err == nil || p.failed {
		return err
	}
	told("waits for a preloader that loads")
	select {
	case <-p.over:
		return nil
	case <-time.After(longestWait):
		return errNotReady
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Fork makes the process of an engine as Start does. A preloader that hangs is given
// up after forkTime, and has made none.
func (f *forker) Fork(c process.Command) (supervisor.Tree, error) {
	p, err := f.pick(c.Env)
	if err != nil {
		return nil, err
	}
	how := f.l.m.preloading()
	if how == "hang" {
		select {
		case <-time.After(forkTime):
		case <-f.l.died:
			return nil, errDead
		}
	}
	if how != "" || !p.h.alive() {
		f.mu.Lock()
		defer f.mu.Unlock()
		p.ready, p.failed = false, true
		f.end(p.h)
		return nil, errFailed
	}
	return runner{f.l}.Start(c)
}

// close ends the preloaders with their launcher.
func (f *forker) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		if p.h != nil {
			f.end(p.h)
		}
	}
}

// checkHelpers checks, when all is at rest, that no preloader of an earlier launcher
// is left.
func (w *world) checkHelpers() {
	f := w.life.forker
	f.mu.Lock()
	ours := map[*helper]bool{}
	for _, p := range f.all {
		ours[p.h] = true
	}
	f.mu.Unlock()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, h := range w.m.helpers {
		if h.alive() && !ours[h] {
			w.m.violated(nothingIsLeft, "%s of an earlier launcher is left", h.name)
		}
	}
}
