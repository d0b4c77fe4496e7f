package simulation

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/core/swap"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// copyFolder starts another launcher on a copy of the state folder, while the first one
// lives or is down, and ends it with all of its engines. It has none, and leaves the first
// one's alone.
func (w *world) copyFolder() {
	if w.life != nil && (w.life.isDead() || w.life.isClosing()) {
		return
	}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "copy")
	must(err)
	defer os.RemoveAll(dir)
	if os.CopyFS(dir, os.DirFS(w.dir)) != nil {
		return // a file was replaced meanwhile
	}
	l := &life{w: w, m: w.m, died: make(chan struct{}), turns: &gpuqueue.Queue{}, gates: map[*gate]bool{}}
	l.ctx, l.over = context.WithCancelCause(context.Background())
	l.state, err = statedir.Open(dir)
	must(err)
	instances, err := l.state.Records("instances")
	must(err)
	l.written, err = l.state.Records("swaps")
	must(err)
	var memory supervisor.SavedState
	for _, saved := range intact(instances, supervisor.ReadSaved) {
		memory.Add(saved)
	}
	l.mark, _ = ownMark(l.state, l.m, &memory)
	swaps := intact(l.written, swap.ReadSaved)
	memory.UnderWay = swap.UnderWay(swaps)
	log := slog.New(slog.NewTextHandler(w.log, nil)).With("launcher", "copy")
	l.sup = supervisor.New(supervisor.Options{
		Mark: l.mark, Engines: l.engines(), Programs: programs, SaveDir: filepath.Join(dir, "saved"), SleepMode: engine.SleepModeAlways,
		GPUs: gpu.Guard(gpus{l}, log), Processes: l.m, Runner: copyRunner{l}, Gates: ports{l}, Logs: logs{l}, Records: instances,
		Feed: eventlog.New(100, memory.Revision), Turns: l.turns, ConfigDir: dir, Limits: limits, Observer: supervisortest.Nobody{}, Logger: log,
	})
	l.swaps = swap.New(swap.Options{
		Supervisor: l.sup, Turns: l.turns, Records: l.written, Limits: limits, Logger: log, Finished: func(string, launcherapi.SwapResult) {},
	})
	ctx, stop := context.WithTimeout(context.Background(), limits.StopGrace)
	defer stop()
	must(l.sup.Recover(ctx, memory))
	l.swaps.Recover(swaps)
	all, _ := l.sup.List()
	for _, i := range all {
		if _, err := w.m.find(i.PID); err == nil {
			w.m.wrong(launchersLeaveOthersAlone, "the launcher of a copied state folder lists %s, which lives, as %s", i.InstanceID, i.State)
		}
	}
	l.swaps.Close(ctx)
	l.closeCopy()
	must(l.state.Close())
	w.late, w.idle = map[string]time.Time{}, time.Time{} // nobody has looked meanwhile
}

// closeCopy ends the launcher of a copied folder with all of its engines, within the time that
// package daemon gives it.
func (l *life) closeCopy() {
	began := time.Now()
	patience, stop := context.WithTimeout(context.Background(), closeTime)
	defer stop()
	if err := l.sup.Close(patience, true); err != nil {
		l.m.wrong(nothingIsLeft, "the launcher of a copied state folder cannot close: %v", err)
	}
	if took := time.Since(began); took > closeTime+driverTime+leeway {
		l.m.wrong(everyCallIsAnswered, "the launcher of a copied state folder took %s to close", took)
	}
	l.over(errDead)
}

// intact are the records that can be read.
func intact[T any](records *statedir.Records, read func(statedir.Found) (T, error)) (all []T) {
	found, err := records.Read()
	if err != nil {
		panic(err)
	}
	for _, f := range found {
		if f.Damage != nil {
			continue
		}
		if record, err := read(f); err == nil {
			all = append(all, record)
		}
	}
	return all
}

// copyRunner is the runner of a launcher on a copied folder, which has nothing to do with
// any process.
type copyRunner struct{ l *life }

func (r copyRunner) touched(what, name string) {
	r.l.m.wrong(launchersLeaveOthersAlone, "the launcher of a copied state folder %s %s", what, name)
}

func (r copyRunner) Start(c process.Command) (supervisor.Tree, error) {
	r.touched("starts", c.Name)
	return nil, errNoDescriptors
}

// Adopt finds the process by its id alone, as the real one does.
func (r copyRunner) Adopt(name string, id process.ID) (supervisor.Tree, error) {
	if _, err := r.l.m.find(id.PID); err == nil {
		r.touched("adopts", name)
	}
	return nil, &process.GoneError{Name: name, ID: id}
}

// Find finds the processes that carry its mark, as the real one does.
func (r copyRunner) Find() ([]process.Found, error) {
	for _, name := range r.carry("") {
		r.touched("finds", name)
	}
	return nil, nil
}

// Clear kills what carries its mark, as the real one does.
func (r copyRunner) Clear(_ context.Context, name string) error {
	for _, name := range r.carry(name) {
		r.touched("kills", name)
	}
	return nil
}

func (r copyRunner) Owners() (map[int]string, error) { return nil, nil }

// carry are the processes of a name that carry its mark; empty: of any name.
func (r copyRunner) carry(name string) (names []string) {
	r.l.m.mu.Lock()
	defer r.l.m.mu.Unlock()
	for _, p := range r.l.m.living() {
		if p.mark == r.l.mark && (name == "" || p.name == name) {
			names = append(names, p.name)
		}
	}
	return names
}
