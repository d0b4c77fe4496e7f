// Package devmem tells which instance holds how much device memory, and waits until
// memory that instances give back is free. An instance is known here by its id and
// its processes.
package devmem

import (
	"log/slog"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// GPUs tell the memory of devices, in bounded time; [gpu.Provider] behind it.
type GPUs interface {
	Memory(uuid string) (gpu.Memory, error)
}

// Processes tells of any process of the machine, by its id; [procfs.Table] behind
// it. For a process that has ended it gives an error, or no memory.
type Processes interface {
	Read(pid int) (procfs.Stat, error)
	// Session is the id of the process that leads the session of pid.
	Session(pid int) (int, error)
	Resident(pid int) procfs.Resident
}

// Trees tells the process trees of instances; [process.Host] behind it.
type Trees interface {
	// Owners gives, by pid, the id of the instance that a living process belongs
	// to; strangers are left out. Every process of the machine is looked at.
	Owners() (map[int]string, error)
}

// Options of a Meter. Everything is required.
type Options struct {
	GPUs      GPUs
	Processes Processes
	Trees     Trees
	// ReturnTime bounds the wait for memory to come back.
	ReturnTime time.Duration
	Logger     *slog.Logger
}

// Meter measures device memory. Its methods may be called from several goroutines
// at once.
type Meter struct {
	opts   Options
	owners owners
}

// New makes a meter that follows no instance yet.
func New(opts Options) *Meter {
	return &Meter{opts: opts, owners: owners{processes: opts.Processes, trees: opts.Trees, roots: map[int]string{}, seen: map[int]owner{}}}
}

// Follow notes that an instance's first process, which leads a session of its own,
// is root (0: unknown): memory of processes of that session is the instance's.
// Follow does not wait for a look at processes that is under way.
func (m *Meter) Follow(id string, root int) { m.owners.follow(id, root) }

// Forget ends Follow: no process of the instance is left. Nor does it wait for a
// look at processes.
func (m *Meter) Forget(id string) { m.owners.forget(id) }

// Reading is the memory of GPUs at one moment, and who holds it.
type Reading struct {
	// GPUs is by UUID. A GPU that cannot be read is missing.
	GPUs map[string]gpu.Memory
	// Held is the memory that each instance's processes hold, in bytes, by id and
	// GPU UUID; instances that hold none are missing. Instances that were never
	// followed are here too, known by the mark that their processes carry.
	Held map[string]map[string]uint64
}

// Read reads the memory of GPUs. Processes that hold memory and are in no
// instance's session may cost a look at every process of the machine. A GPU that
// cannot be read is logged.
func (m *Meter) Read(uuids []string) Reading {
	r := Reading{GPUs: m.memory(uuids), Held: map[string]map[string]uint64{}}
	m.eachHolder(r.GPUs, func(uuid, id string, p gpu.Process) {
		if r.Held[id] == nil {
			r.Held[id] = map[string]uint64{}
		}
		r.Held[id][uuid] += p.Bytes
	})
	return r
}

// Held is the memory that an instance's processes hold of GPUs, in bytes, by UUID;
// GPUs of which they hold none are missing.
func (m *Meter) Held(id string, uuids []string) map[string]uint64 { return m.Read(uuids).Held[id] }

// Holders lists, by GPU UUID, the processes of an instance that hold memory of GPUs. A GPU
// that cannot be read has an empty list, so that AwaitReturned says so.
func (m *Meter) Holders(id string, uuids []string) map[string][]int {
	out := map[string][]int{}
	gpus := m.memory(uuids)
	for _, uuid := range uuids {
		if _, readable := gpus[uuid]; !readable {
			out[uuid] = []int{}
		}
	}
	m.eachHolder(gpus, func(uuid, owner string, p gpu.Process) {
		if owner == id {
			out[uuid] = append(out[uuid], p.PID)
		}
	})
	return out
}

// eachHolder calls do with each process of an instance that holds memory.
func (m *Meter) eachHolder(gpus map[string]gpu.Memory, do func(uuid, id string, p gpu.Process)) {
	pids := map[int]bool{}
	for _, memory := range gpus {
		for _, p := range memory.Processes {
			pids[p.PID] = true
		}
	}
	named, err := m.owners.of(pids)
	if err != nil {
		m.opts.Logger.Warn("cannot tell which instances the processes belong to that hold device memory: they are counted as strangers", "error", err)
	}
	for uuid, memory := range gpus {
		for _, p := range memory.Processes {
			if id := named[p.PID]; id != "" {
				do(uuid, id, p)
			}
		}
	}
}

// memory reads the memory of GPUs, side by side: a driver that hangs holds up the caller
// once, not once for each GPU. A GPU that cannot be read is left out.
func (m *Meter) memory(uuids []string) map[string]gpu.Memory {
	read := make([]gpu.Memory, len(uuids))
	errs := make([]error, len(uuids))
	var all sync.WaitGroup
	for n, id := range uuids {
		all.Go(func() { read[n], errs[n] = m.opts.GPUs.Memory(id) })
	}
	all.Wait()
	out := make(map[string]gpu.Memory, len(uuids))
	for n, id := range uuids {
		if errs[n] != nil {
			m.opts.Logger.Warn("cannot read the memory of a GPU", "gpu", id, "error", errs[n])
			continue
		}
		out[id] = read[n]
	}
	return out
}
