package process

import (
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/machine/process/reaper"
)

// children records which children of this process have an owner that reaps them. All
// Hosts share it, because children belong to the process.
var children = &family{owned: map[int]bool{}}

type family struct {
	births sync.RWMutex // held for writing while strays are reaped, so that no child is reaped before it is registered
	mu     sync.Mutex
	owned  map[int]bool
}

// fork calls start, and makes the caller the owner of the process whose id it
// returns, if any.
func (f *family) fork(start func() (pid int, err error)) (int, error) {
	f.births.RLock()
	defer f.births.RUnlock()
	pid, err := start()
	if pid > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.owned[pid] = true
	}
	return pid, err
}

// release ends the ownership; call it once the owner has reaped the process.
func (f *family) release(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owned, pid)
}

func (f *family) owns(pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owned[pid]
}

// reapStrays reaps the orphans of our trees that became our children and have
// ended. Children in this process's own session were started by other code, which
// will reap them.
func (f *family) reapStrays(tell func(procfs.Stat, syscall.WaitStatus)) error {
	f.births.Lock()
	defer f.births.Unlock()
	session, err := unix.Getsid(0)
	if err != nil {
		return fmt.Errorf("cannot find out the session of this process: %w", err)
	}
	_, err = reaper.Reap(func(stat procfs.Stat) bool {
		return f.owns(stat.PID) || stat.Session == session
	}, tell)
	return err
}
