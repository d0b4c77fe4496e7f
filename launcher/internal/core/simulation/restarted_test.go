package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has engines that cannot sleep in their process: they are ended to sleep, and started
// again to wake.

const (
	restartedName    = "llamacpp"
	restartedProgram = "/bin/llama-server"

	noProcessAsleep    = "who sleeps without a process has none, and holds no memory"
	nobodyWakesUnasked = "nobody is started again unasked"
	savedIsOwn         = "what an engine reads is what the last one of its instance has saved"
)

var programs = map[string][]string{"vllm": {"/bin/vllm"}, restartedName: {restartedProgram}}

// engines are those of a launcher.
func (l *life) engines() []engine.Engine {
	vllm := &simEngine{l, engine.NewVLLM(engine.VLLMOptions{})}
	return []engine.Engine{vllm, &simRestarted{vllm, l}}
}

// simRestarted is a simEngine that cannot sleep in its process.
type simRestarted struct {
	engine.Engine
	l *life
}

var _ engine.Restarted = (*simRestarted)(nil)

func (*simRestarted) Name() string { return restartedName }

func (e *simRestarted) Plan(r engine.Request) (engine.Plan, error) {
	plan, err := e.Engine.Plan(r)
	plan.Forks = false
	return plan, err
}

func isRestarted(argv []string) bool { return len(argv) > 0 && argv[0] == restartedProgram }

func (*simRestarted) Running(argv, env []string) (engine.Running, error) {
	if !isRestarted(argv) {
		return engine.Running{}, errors.New("this is another engine")
	}
	return engine.NewVLLM(engine.VLLMOptions{}).Running(argv, env)
}

func (e *simEngine) Running(argv, env []string) (engine.Running, error) {
	if isRestarted(argv) {
		return engine.Running{}, errors.New("this is another engine")
	}
	return e.VLLM.Running(argv, env)
}

func (e *simRestarted) ask(ctx context.Context, what, base string, do func(p *proc) error) error {
	return e.Engine.(*simEngine).ask(ctx, what, base, 400*time.Millisecond, func(p *proc) error { //nolint:forcetypeassert // engines has made it
		if p.refusing {
			return &engine.StatusError{Call: "POST /slots", Status: 500}
		}
		return do(p)
	})
}

// Save writes the number of the process, in place of conversations.
func (e *simRestarted) Save(ctx context.Context, base, dir string, _ engine.Secret) error {
	for g := range e.l.gatesTo(portOf(base)) {
		if !e.l.isDead() {
			e.l.w.checkLevelWritten(g.id, 1)
		}
	}
	full := e.l.w.full()
	return e.ask(ctx, "save", base, func(p *proc) error {
		if full {
			return errors.New("the disk is full")
		}
		return os.WriteFile(filepath.Join(dir, "slot"), []byte(fmt.Sprint(p.pid)), 0o600)
	})
}

func (e *simRestarted) Restore(ctx context.Context, base, dir string, _ engine.Secret) error {
	return e.ask(ctx, "restore", base, func(p *proc) error {
		saved, err := os.ReadFile(filepath.Join(dir, "slot"))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && !p.mayRead(string(saved)) && e.l.w.deaths == 0 {
			p.m.violated(savedIsOwn, "%s, of process %d, reads what process %s has saved", p.name, p.pid, saved)
		}
		return err
	})
}

// mayRead says whether what a process reads was saved by the last one before it that was awake for
// clients, or by one that came after.
func (p *proc) mayRead(pid string) bool {
	for other := p.before; other != nil; other = other.before {
		if pid == fmt.Sprint(other.pid) {
			return true
		}
		if other.opened {
			return false
		}
	}
	return false
}

// startAgain has a process be like the one before of its instance, if that could not sleep in its
// process: what was wrong with it is wrong still. The machine's lock is held.
func (p *proc) startAgain() {
	if before := p.m.last(p.name); before != nil && before.model == p.model {
		p.before = before
		p.troubled = p.before.troubled
		p.known, p.wakesGarbled, p.wakesMute = p.before.known, p.before.wakesGarbled, p.before.wakesMute
		p.garbled, p.mute = p.before.wakesGarbled, p.before.wakesMute
	}
}

// checkStartedAgain checks that somebody asked for the start of an instance that slept without a
// process, and reports whether it wakes.
func (l *life) checkStartedAgain(id string) (wakes bool) {
	view, err := l.sup.Get(id)
	if err != nil || view.Engine != restartedName || view.State != string(launcher.Waking) {
		return false
	}
	w := l.w
	w.m.mu.Lock()
	var ended time.Time
	for _, p := range w.m.procs {
		if p.name == id && !p.alive() && p.exit.At.After(ended) {
			ended = p.exit.At
		}
	}
	stalled := w.m.ever["disk stalls"]
	w.m.mu.Unlock()
	w.mu.Lock()
	asked := w.isAsked(id, ended, "wake")
	w.mu.Unlock()
	if !asked && !stalled && !l.isDead() {
		w.m.wrong(nobodyWakesUnasked, "%s is started", id)
	}
	return true
}

// isAsked says whether a client asks a verb of an instance, or a swap that may move it, or was
// answered since a time. A launcher that is dead may have left anything to do. The lock is held.
func (w *world) isAsked(id string, since time.Time, verbs ...string) bool {
	if w.deaths > 0 {
		return true
	}
	return slices.ContainsFunc(w.requests, func(r *request) bool {
		if !r.isSwap() && (r.id != id || !slices.Contains(verbs, r.what)) || r.asked == 0 {
			return false
		}
		return r.open || r.left || slices.ContainsFunc(r.answers, func(a answer) bool { return a.at.After(since) })
	})
}

// checkShut checks that nobody is let in to an engine that is ended to sleep.
func (t *tree) checkShut() {
	for g := range t.l.gatesTo(t.p.port) {
		if g.isOpen() && !t.l.isDead() && t.p.isRestarted() {
			t.l.m.wrong(gatesTellTheTruth, "%s is ended, and its gate is open", g.id)
		}
	}
}

func (p *proc) isRestarted() bool { return isRestarted(p.argv) }

// checkRestarted checks what is listed of an instance that has no process while it sleeps. The
// machine's lock is held.
func (w *world) checkRestarted(i launcherapi.Instance, complain func(invariant, format string, args ...any)) {
	state := launcher.State(i.State)
	switch {
	case i.Engine != restartedName:
	case state == launcher.Failed && w.fellAsleep(i):
		w.m.violated(noProcessAsleep, "%s is failed, and its process was ended to sleep: %s", i.InstanceID, i.Reason)
	case state == launcher.Awake && i.PID == 0:
		w.m.violated(noProcessAsleep, "%s is awake without a process", i.InstanceID)
	case state != launcher.Sleeping:
	case i.PID != 0 || len(i.GPUBytes) > 0:
		w.m.violated(noProcessAsleep, "%s sleeps, and has process %d and holds %v", i.InstanceID, i.PID, i.GPUBytes)
	default:
		p := w.m.last(i.InstanceID)
		unseen := w.deaths > 0 || w.m.ever["memory is lost"] || w.m.ever["blind"] || w.m.ever["driver hangs"]
		switch {
		case p == nil:
		case p.alive():
			complain(noProcessAsleep, "a process of %s lives, and it sleeps", i.InstanceID)
		case len(p.held) > 0 && !unseen:
			w.m.violated(noProcessAsleep, "%s sleeps, and its process holds memory", i.InstanceID)
		}
	}
}

// fellAsleep says whether the last process of an instance was well and was ended by a launcher, with
// nothing by which the launcher may not know why. The machine's lock is held.
func (w *world) fellAsleep(i launcherapi.Instance) bool {
	p := w.m.last(i.InstanceID)
	ever := func(what string) bool { return w.m.ever[what] }
	return p != nil && !p.birth.Before(i.CreatedAt) && !p.alive() && p.isRestarted() && p.asked && p.ready && !p.troubled &&
		!slices.ContainsFunc([]string{"no descriptors", "disk full", "disk stalls", "damage", "driver hangs", "loads take long"}, ever)
}

// wasLost says whether an instance may have been lost with its file: nothing else tells of one that
// sleeps without a process.
func (w *world) wasLost(id string) bool {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	p := w.m.last(id)
	return p != nil && p.isRestarted() && w.damaged["an instance"]
}

// last is the latest process of an instance; nil: there was none. The lock is held.
func (m *machine) last(id string) (last *proc) {
	for _, p := range m.procs {
		if p.name == id && (last == nil || p.pid > last.pid) {
			last = p
		}
	}
	return last
}

// restartedGotThere is gotThere for an engine that cannot sleep in its process.
func (w *world) restartedGotThere(state launcher.State, p *proc) bool {
	switch {
	case state != launcher.FallingAsleep && state != launcher.Waking:
		return false
	case p.alive():
		return state == launcher.Waking && p.ready
	}
	return len(p.held) == 0 && !w.m.ever["no descriptors"]
}

// checkKept checks that the models of those stay that sleep without a process and read them when
// they wake.
func (w *world) checkKept(all []launcherapi.Instance) {
	if !w.pulled {
		return
	}
	leases := w.leases()
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, i := range all {
		p := w.m.last(i.InstanceID)
		if i.Engine == restartedName && i.State == string(launcher.Sleeping) && p != nil && strings.HasPrefix(p.reads, w.storeDir()) && !slices.Contains(leases, i.InstanceID) {
			w.m.violated(modelsStay, "%s is to read the model when it wakes, and has no lease: %v have", i.InstanceID, leases)
		}
	}
}

func (w *world) saveDir() string { return filepath.Join(w.dir, "saved") }

// checkSaved checks that nothing is kept for an instance that is gone.
func (w *world) checkSaved(all []launcherapi.Instance) {
	dirs, err := os.ReadDir(w.saveDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		panic(err)
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(all, func(i launcherapi.Instance) bool {
			return i.InstanceID == dir.Name() && (!launcher.State(i.State).Ended() || i.Port != 0)
		}) {
			w.m.wrong(nothingIsLeft, "what %s has saved is there still", dir.Name())
		}
	}
}

// drawRestarted has some instances of some scripts be of an engine that cannot sleep in its
// process. It draws by itself, so that the steps of a seed stay as they are.
func (d *drawing) drawRestarted(steps []step) []step {
	if d.n(3) > 0 {
		return steps
	}
	for n := range steps {
		s := &steps[n]
		if (s.what == "create" || s.what == "swap in new") && d.n(3) > 0 {
			s.engine = restartedName
			if s.start == launcherapi.StartFork {
				s.start = launcherapi.StartAuto // it cannot be forked
			}
		}
	}
	return steps
}

func restartedOf(seed uint64) *drawing {
	return &drawing{Rand: rand.New(rand.NewPCG(seed, 0x6c6c61))}
}

// TestAKillAtEachCallOfASleepWithoutAProcess kills the launcher at every call that it makes into
// the world while an instance falls asleep that has no process then, wakes, and is swapped in and
// out.
func TestAKillAtEachCallOfASleepWithoutAProcess(t *testing.T) {
	for name, steps := range map[string][]step{
		"sleep": {{what: "sleep", id: "a", level: 1}},
		"wake":  {{at: -4 * time.Second, what: "sleep", id: "a", level: 1}, {what: "wake", id: "a"}},
		"out":   {{what: "swap in new", request: "second", keyed: true, persist: true, id: "b", gpus: []string{"g0"}, share: "0.9", engine: restartedName}},
		"in": {
			{at: -8 * time.Second, what: "swap in new", request: "second", id: "b", gpus: []string{"g0"}, share: "0.9", engine: restartedName},
			{what: "swap in sleeping", request: "third", keyed: true, persist: true, id: "a"},
		},
		"delete": {{what: "sleep", id: "a", level: 2}, {at: time.Second, what: "delete", id: "a"}},
	} {
		for _, kill := range []struct {
			after bool
			away  time.Duration // in a short one, a process that was told to end may not have ended
		}{{false, time.Second}, {true, time.Second}, {true, 50 * time.Millisecond}} {
			for n, more := 1, true; more; n++ {
				require.Less(t, n, 10_000)
				const began = 20 * time.Second
				s := script{seed: 1, end: 90 * time.Second, steps: []step{
					{what: "create", request: "first", id: "a", gpus: []string{"g0"}, share: "0.9", engine: restartedName},
				}}
				for k, next := range steps {
					if k == len(steps)-1 || name == "delete" && k == 0 {
						s.steps = append(s.steps, step{at: began - 1 + next.at, what: "kill", n: n, after: kill.after, limit: kill.away})
					}
					next.at += began
					s.steps = append(s.steps, next)
				}
				out := play(t, s, false)
				more = out.deaths > 0
				awake := 0
				for _, i := range out.left {
					if i.State == string(launcher.Awake) {
						awake++
					}
					assert.Contains(t, []string{string(launcher.Awake), string(launcher.Sleeping)}, i.State)
				}
				assert.LessOrEqual(t, awake, 1)
				if !assert.Empty(t, out.wrong, "%s, killed at call %d: %+v", name, n, kill) {
					t.Log(out.log)
				}
			}
		}
	}
}
