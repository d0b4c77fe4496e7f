package supervisor

import (
	"cmp"
	"maps"
	"sync"

	"hotseat.dev/hotseat/launcher/internal/gpu"
)

// reading is the memory of GPUs at one moment, and whose the processes are that
// hold it.
type reading struct {
	gpus    map[string]gpu.Memory
	session map[int]int       // of each process that lives
	roots   map[int]*instance // by the process that leads their session
	tree    map[int]string    // of each that lives and is in no instance's session; empty: a stranger
}

// read reads the memory of GPUs. The lock is not held: a process in no
// instance's session may cost a look at every process of the machine.
func (s *Supervisor) read(uuids []string) reading {
	r := reading{gpus: s.memory(uuids)}
	processes := 0
	for _, m := range r.gpus {
		processes += len(m.Processes)
	}
	r.session = make(map[int]int, processes)
	for _, m := range r.gpus {
		for _, p := range m.Processes {
			if session, err := s.opts.Processes.Session(p.PID); err == nil {
				r.session[p.PID] = session
			}
		}
	}
	s.mu.Lock()
	r.roots = s.roots()
	s.mu.Unlock()
	var outside []int
	for pid, session := range r.session {
		if r.roots[pid] == nil && r.roots[session] == nil {
			outside = append(outside, pid)
		}
	}
	var err error
	if r.tree, err = s.owners.of(outside, s.opts.Processes, s.opts.Runner.Owners); err != nil {
		s.log.Warn("cannot tell whose the processes are that hold device memory: they are counted as strangers", "error", err)
	}
	return r
}

// roots finds instances by the process that leads their session. The lock is
// held.
func (s *Supervisor) roots() map[int]*instance {
	roots := make(map[int]*instance, len(s.instances))
	for _, i := range s.instances {
		if i.root.PID != 0 && !i.released {
			roots[i.root.PID] = i
		}
	}
	return roots
}

// attribute says how much of each GPU each instance's processes hold. The lock
// is held.
func (s *Supervisor) attribute(r reading) map[*instance]map[string]uint64 {
	out := make(map[*instance]map[string]uint64, len(s.instances))
	for id, m := range r.gpus {
		for _, p := range m.Processes {
			i := s.ownerOf(r, p.PID)
			if i == nil {
				continue
			}
			if out[i] == nil {
				out[i] = map[string]uint64{}
			}
			out[i][id] += p.Bytes
		}
	}
	return out
}

// ownerOf is the instance that a process belongs to, by the session that the
// launcher made for each, or else by its tree; nil for a stranger. One that has
// ended since the driver listed it is known by having been seen before. The
// lock is held.
func (s *Supervisor) ownerOf(r reading, pid int) *instance {
	session, lives := r.session[pid]
	i := cmp.Or(r.roots[pid], r.roots[session], s.instances[r.tree[pid]])
	if i == nil && !lives {
		for _, seen := range s.instances {
			if !seen.released && seen.holders[pid] {
				return seen
			}
		}
	}
	if i == nil || i.released {
		return nil
	}
	i.holders[pid] = true
	return i
}

// eachHolder calls do with every process of an instance that holds memory, and of
// which GPU.
func (s *Supervisor) eachHolder(i *instance, do func(uuid string, p gpu.Process)) {
	r := s.read(i.gpus())
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range r.gpus {
		for _, p := range m.Processes {
			if s.ownerOf(r, p.PID) == i {
				do(id, p)
			}
		}
	}
}

// holding lists, by GPU, the processes of an instance that hold its memory.
func (s *Supervisor) holding(i *instance) map[string][]int {
	out := map[string][]int{}
	s.eachHolder(i, func(uuid string, p gpu.Process) { out[uuid] = append(out[uuid], p.PID) })
	return out
}

// owners remembers the trees of processes, strangers too: it does not change
// while a process lives, and one look at all processes tells it of all that
// have come since the last.
type owners struct {
	mu    sync.Mutex
	known map[int]owned
}

type owned struct {
	startTime uint64 // with the process id it names one process
	tree      string // empty: a stranger
}

// of names the tree of each process that lives. It looks at most once, and only
// for processes that it does not know. An error is that of the look.
func (o *owners) of(pids []int, processes Processes, look func() (map[int]string, error)) (map[int]string, error) {
	if len(pids) == 0 {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	tree, fresh := map[int]string{}, map[int]uint64{}
	for _, pid := range pids {
		stat, err := processes.Read(pid)
		if err != nil {
			continue // it has ended
		}
		if known := o.known[pid]; known.startTime == stat.StartTime {
			tree[pid] = known.tree
		} else {
			fresh[pid] = stat.StartTime
		}
	}
	if len(fresh) == 0 {
		return tree, nil
	}
	found, err := look()
	if err != nil {
		return tree, err
	}
	if o.known == nil {
		o.known = map[int]owned{}
	}
	maps.DeleteFunc(o.known, func(pid int, _ owned) bool {
		_, err := processes.Session(pid)
		return err != nil
	})
	for pid, startTime := range fresh {
		o.known[pid] = owned{startTime, found[pid]}
		tree[pid] = found[pid]
	}
	return tree, nil
}
