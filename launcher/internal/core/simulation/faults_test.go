package simulation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// acts are what the steps of a script do that are no calls of clients. Faults last
// as long as their step says, and not beyond the end of the script; but for engines that
// hang for good.
var acts = map[string]func(w *world, s step){
	"retry":            func(w *world, s step) { w.retry(w.named(s.request)) },
	"call off":         func(w *world, s step) { w.callOff(w.named(s.request)) },
	"client goes away": func(w *world, s step) { w.goAway(w.named(s.request)) },
	"go":               func(w *world, s step) { w.say(s.what, w.named(s.request)) },
	"commit":           func(w *world, s step) { w.say(s.what, w.named(s.request)) },
	"undo":             func(w *world, s step) { w.say(s.what, w.named(s.request)) },

	"crash": func(w *world, s step) {
		w.engineOf(s.id, func(p *proc) { p.end(signalled(syscall.SIGSEGV)) })
	},
	"crash at next call": func(w *world, s step) { w.engineOf(s.id, func(p *proc) { p.crashNext = true }) },
	"hang": func(w *world, s step) {
		w.engineOf(s.id, func(p *proc) { p.hung = time.Now().Add(min(s.limit, time.Until(w.end))) })
	},
	"hang for good": func(w *world, s step) {
		w.engineOf(s.id, func(p *proc) { p.hung = w.end.Add(100 * restTime) })
	},
	"refuse": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.refusing = true }, func(p *proc) { p.refusing = false })
	},
	"answer late": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.slow = time.Duration(s.n) * time.Second }, func(p *proc) { p.slow = 0 })
	},
	"cannot reload": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.cannotReload = true }, func(p *proc) { p.cannotReload = false })
	},
	"wake in part": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.wakesInPart = true }, func(p *proc) { p.wakesInPart = false })
	},
	"wake garbled": func(w *world, s step) { w.engineOf(s.id, func(p *proc) { p.wakesGarbled = true }) },
	"wake mute":    func(w *world, s step) { w.engineOf(s.id, func(p *proc) { p.wakesMute = true }) },
	"sleep in part": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.sleepsInPart = true }, func(p *proc) { p.sleepsInPart = false })
	},
	"cannot be killed": func(w *world, s step) {
		w.forAWhile(s, func(p *proc) { p.immortal = true }, func(p *proc) { p.immortal = false })
	},
	"be stubborn": func(w *world, s step) { w.engineOf(s.id, func(p *proc) { p.stubborn = true }) },

	"memory comes late": func(w *world, s step) {
		w.machineFor(s, "", func(m *machine) { m.late = time.Duration(s.n) * time.Second }, func(m *machine) { m.late = 0 })
	},
	"memory is lost": func(w *world, s step) {
		w.machineFor(s, "memory is lost", func(m *machine) { m.late = 2 * limits.Memory }, func(m *machine) { m.late = 0 })
	},
	"driver lists nobody": func(w *world, s step) {
		w.machineFor(s, "blind", func(m *machine) { m.blind = true }, func(m *machine) { m.blind = false })
	},
	"driver hangs": func(w *world, s step) {
		w.machineFor(s, "driver hangs", func(m *machine) {
			until := time.Now().Add(min(s.limit, time.Until(w.end)))
			if until.After(m.silent[s.gpus[0]]) { // a call that hangs does not end sooner than it would
				m.silent[s.gpus[0]] = until
			}
		}, func(*machine) {})
	},
	"stranger": func(w *world, s step) {
		gpu := s.gpus[0]
		bytes := min(uint64(s.n)*gib, w.m.memory(gpu).FreeBytes)
		w.machineFor(s, "stranger "+gpu, func(m *machine) { m.strange[gpu] += bytes }, func(m *machine) { m.strange[gpu] -= bytes })
	},
	"preloaders die": func(w *world, s step) {
		w.machineFor(s, "", func(m *machine) { m.preloaders = "fail"; m.endHelpers("") }, func(m *machine) { m.preloaders = "" })
	},
	"preloaders hang": func(w *world, s step) {
		w.machineFor(s, "", func(m *machine) { m.preloaders = "hang" }, func(m *machine) { m.preloaders = "" })
	},
	"pull the model":   func(w *world, _ step) { w.pullModel() },
	"remove the model": func(w *world, _ step) { w.removeModel() },
	"disk full":        func(w *world, s step) { w.fillDisk(true, s.n); w.later(s.limit, func() { w.fillDisk(false, 0) }) },
	"disk stalls":      func(w *world, s step) { w.stallDisk(s.limit, s.n > 0) },
	"port taken": func(w *world, s step) {
		if _, err := w.m.listen(s.port, "a stranger"); err == nil {
			w.m.remember("port taken")
			w.later(s.limit, func() { w.m.free(s.port) })
		}
	},
	"no descriptors": func(w *world, s step) {
		w.machineFor(s, "no descriptors", func(m *machine) { m.starved = true }, func(m *machine) { m.starved = false })
	},
	"loads take long": func(w *world, s step) {
		w.machineFor(s, "loads take long", func(m *machine) { m.loading = time.Duration(s.n) * time.Second }, func(m *machine) { m.loading = 0 })
	},

	"kill": func(w *world, s step) {
		w.down = s
		if w.life == nil {
			return
		}
		if s.n == 0 {
			w.life.kill()
			return
		}
		w.life.killAtCall(s.n, s.after)
	},
	"clock is set":        func(w *world, s step) { w.setClock(time.Duration(s.n) * time.Minute) },
	"stranger with marks": func(w *world, s step) { w.addStranger(s) },
	"other configuration": func(w *world, s step) { w.reconfigure(s) },
	"copy of the folder":  func(w *world, _ step) { w.copyFolder() },
	"close":               func(w *world, s step) { w.down = s; w.closeLauncher() },
}

// killAtCall has the launcher be killed at the n-th of its calls from now on.
func (l *life) killAtCall(n int, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killAt, l.killAfter = 0, after
	if n > 0 {
		l.killAt = l.calls + n
	}
}

// engineOf does something to the process of an instance, where there is one, with
// the machine's lock.
func (w *world) engineOf(id string, do func(*proc)) *proc {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.living() {
		if p.name == id {
			p.troubled = true
			do(p)
			return p
		}
	}
	return nil
}

// forAWhile makes an engine odd until the step's limit is over.
func (w *world) forAWhile(s step, begin, end func(*proc)) {
	if p := w.engineOf(s.id, begin); p != nil {
		w.later(s.limit, func() { w.m.mu.Lock(); defer w.m.mu.Unlock(); end(p) })
	}
}

// machineFor makes the machine odd until the step's limit is over. ever is what is
// remembered of that.
func (w *world) machineFor(s step, ever string, begin, end func(*machine)) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if ever != "" {
		w.m.ever[ever] = true
	}
	begin(w.m)
	w.later(s.limit, func() { w.m.mu.Lock(); defer w.m.mu.Unlock(); end(w.m) })
}

// later does something when a time is over, at the latest at the end of the script.
func (w *world) later(after time.Duration, do func()) {
	time.AfterFunc(min(after, time.Until(w.end)), do)
}

// fillDisk fills the disk, but for the room that some more writes need, or empties it.
func (w *world) fillDisk(full bool, fits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diskFull, w.fits = full, fits
	w.m.remember("disk full")
}

// drawFullDisk has the disk fill up during a swap of some scripts, between two of its writes. It
// draws by itself, so that the steps of a seed stay as they are. Where a driver hangs it does not: a
// full disk excuses a swap that fails, and a silent driver shows in few of them as it is.
func (d *drawing) drawFullDisk(steps []step) []step {
	if d.n(8) > 0 || slices.ContainsFunc(steps, func(s step) bool { return s.what == "driver hangs" }) {
		return steps
	}
	var swaps []int
	for n, s := range steps {
		if strings.HasPrefix(s.what, "swap") {
			swaps = append(swaps, n)
		}
	}
	if len(swaps) == 0 {
		return steps
	}
	n := swaps[d.n(len(swaps))]
	return slices.Insert(steps, n, step{at: steps[n].at, what: "disk full", limit: d.between(time.Second, 8*time.Second), n: 1 + d.n(6)})
}

// damageFile spoils a file of the launcher, which is dead.
func (w *world) damageFile(what string) {
	folder := map[string]string{"an instance": "instances", "a swap": "swaps"}[what]
	if folder == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(w.dir, folder, "*.json"))
	if err != nil || len(files) == 0 {
		return
	}
	w.damaged[what] = true
	w.m.remember("damage")
	text := []byte(`{"version":1,"record":{"`)
	if err := os.WriteFile(files[w.m.draw("damage", uint64(len(files)))], text, 0o600); err != nil {
		panic(err)
	}
}
