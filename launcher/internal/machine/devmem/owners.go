package devmem

import (
	"cmp"
	"maps"
	"sync"
)

// owners remembers the instance of each process that was seen to hold device
// memory. The owner of a process does not change while the process lives, so that
// each process, of strangers too, is looked up once.
type owners struct {
	processes Processes
	trees     Trees

	mu    sync.Mutex
	roots map[int]string // instance by the process that leads its session
	seen  map[int]owner

	looking sync.Mutex // taken before mu for a look at every process of the machine
}

// owner is the owner of one process.
type owner struct {
	instance  string // id; empty: the process is a stranger's
	startTime uint64 // with the process id it names the process; 0: the process was in the session of the instance
}

func (o *owners) follow(id string, root int) {
	if root == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.roots[root] = id
}

func (o *owners) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.roots, func(_ int, instance string) bool { return instance == id })
	maps.DeleteFunc(o.seen, func(_ int, known owner) bool { return known.instance == id })
}

// of names the instance of each process, by the session that the launcher made for
// the instance, or else by its tree; strangers have none. The instance of a process
// that has ended since the driver listed it is known when the process was seen
// before. The error is that of the look at every process of the machine; processes
// whose instance is not known then count as strangers until the next call.
func (o *owners) of(pids map[int]bool) (map[int]string, error) {
	session := make(map[int]int, len(pids))
	for pid := range pids {
		if leader, err := o.processes.Session(pid); err == nil {
			session[pid] = leader
		}
	}
	named := make(map[int]string, len(pids))
	var outside []int
	o.mu.Lock()
	for pid := range pids {
		leader, lives := session[pid]
		instance := cmp.Or(o.roots[pid], o.roots[leader])
		switch {
		case instance != "":
			named[pid], o.seen[pid] = instance, owner{instance: instance}
		case !lives:
			named[pid] = o.seen[pid].instance
		default:
			outside = append(outside, pid)
		}
	}
	o.mu.Unlock()
	if len(outside) == 0 {
		return named, nil
	}
	return named, o.byTree(outside, named)
}

// byTree names the instances of processes that are in no instance's session. At
// most once does it look at every process of the machine, and not at all when all
// pids were looked up before.
func (o *owners) byTree(pids []int, named map[int]string) error {
	o.looking.Lock()
	defer o.looking.Unlock()
	fresh := map[int]uint64{} // start time by process
	for _, pid := range pids {
		if stat, err := o.processes.Read(pid); err == nil {
			fresh[pid] = stat.StartTime
		}
	}
	o.mu.Lock()
	maps.DeleteFunc(fresh, func(pid int, startTime uint64) bool {
		known := o.seen[pid]
		if known.startTime != startTime {
			return false
		}
		named[pid] = known.instance
		return true
	})
	o.mu.Unlock()
	if len(fresh) == 0 {
		return nil
	}
	trees, err := o.trees.Owners()
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetStrangers()
	for pid, startTime := range fresh {
		named[pid], o.seen[pid] = trees[pid], owner{trees[pid], startTime}
	}
	return nil
}

// forgetStrangers drops the strangers that have ended. The lock is held.
func (o *owners) forgetStrangers() {
	maps.DeleteFunc(o.seen, func(pid int, known owner) bool {
		if known.instance != "" {
			return false
		}
		_, err := o.processes.Session(pid)
		return err != nil
	})
}
