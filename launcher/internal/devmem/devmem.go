// Package devmem says whose the memory of devices is, and waits until memory that
// is on its way back is free. An instance is known here by its id and by the
// processes that are its own.
package devmem

import (
	"log/slog"
	"time"

	"hotseat.dev/hotseat/launcher/internal/gpu"
	"hotseat.dev/hotseat/launcher/internal/process/procfs"
)

// GPUs tell the memory of devices; [gpu.Provider] behind it.
type GPUs interface {
	Memory(uuid string) (gpu.Memory, error)
}

// Processes tells of any process of the machine, by its id; [procfs.Table] behind
// it. A process that has ended is an error, or holds nothing.
type Processes interface {
	Read(pid int) (procfs.Stat, error)
	// Session is the process that leads the session of another.
	Session(pid int) (int, error)
	Resident(pid int) procfs.Resident
}

// Trees tells the process trees of instances; [process.Host] behind it.
type Trees interface {
	// Owners says which instance each living process belongs to, strangers left out.
	// It looks at every process of the machine.
	Owners() (map[int]string, error)
}

// Options of a Meter. Everything is required.
type Options struct {
	GPUs      GPUs
	Processes Processes
	Trees     Trees
	// ReturnTime bounds the wait for memory that is on its way back.
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
// is root (0: unknown); what processes of that session hold is the instance's. It
// waits for no look at processes.
func (m *Meter) Follow(id string, root int) { m.owners.follow(id, root) }

// Forget ends Follow: no process of the instance is left. It waits for no look at
// processes.
func (m *Meter) Forget(id string) { m.owners.forget(id) }

// Reading is the memory of GPUs at one moment, and who holds it.
type Reading struct {
	// GPUs is by UUID. A GPU that cannot be read is missing.
	GPUs map[string]gpu.Memory
	// Held is what each instance's processes hold, in bytes, by id and GPU UUID;
	// instances that hold nothing are missing. An id may be that of an instance
	// which was never followed, by the mark that its processes carry.
	Held map[string]map[string]uint64
}

// Read reads the memory of GPUs. Holders in no instance's session may cost a look
// at every process of the machine. A GPU that cannot be read is logged.
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

// Held is what an instance's processes hold of GPUs, in bytes, by UUID; GPUs of
// which they hold nothing are missing, and nil is nothing at all.
func (m *Meter) Held(id string, uuids []string) map[string]uint64 { return m.Read(uuids).Held[id] }

// Holders lists, by GPU UUID, the processes of an instance that hold memory of GPUs.
func (m *Meter) Holders(id string, uuids []string) map[string][]int {
	out := map[string][]int{}
	m.eachHolder(m.memory(uuids), func(uuid, owner string, p gpu.Process) {
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
		m.opts.Logger.Warn("cannot tell whose the processes are that hold device memory: they are counted as strangers", "error", err)
	}
	for uuid, memory := range gpus {
		for _, p := range memory.Processes {
			if id := named[p.PID]; id != "" {
				do(uuid, id, p)
			}
		}
	}
}

// memory reads the memory of GPUs. A GPU that cannot be read is left out.
func (m *Meter) memory(uuids []string) map[string]gpu.Memory {
	out := make(map[string]gpu.Memory, len(uuids))
	for _, id := range uuids {
		memory, err := m.opts.GPUs.Memory(id)
		if err != nil {
			m.opts.Logger.Warn("cannot read the memory of a GPU", "gpu", id, "error", err)
			continue
		}
		out[id] = memory
	}
	return out
}
