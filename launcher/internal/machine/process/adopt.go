package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// GoneError says that the process to be adopted has ended. Exit says how, if that was
// recorded.
type GoneError struct {
	Name string
	ID   ID
	Exit Exit
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("cannot adopt %q: process %d is gone", e.Name, e.ID.PID)
}

// Adopt takes over a process that an earlier launcher started, or that another process
// forked for us and that became our child. The error is a *GoneError when the process
// has ended, even if another process has its id now. Clear then ends the processes
// that it left behind. After any other error the process may live, and the caller may
// try again. The exit code will be known if this process is the parent, or if the
// parent records exits in Options.ExitDir. Find gives no start time for a root that hangs:
// Adopt returns [procfs.ErrHangs] then, until the kernel answers for the process.
func (h *Host) Adopt(name string, id ID) (*Process, error) {
	if err := h.reserve(name); err != nil {
		return nil, fmt.Errorf("cannot adopt %q: %w", name, err)
	}
	id, err := h.identify(name, id)
	p := &Process{host: h, name: name, id: id, done: make(chan struct{})}
	if err == nil {
		_, err = children.fork(p.find) // from here on only we reap the process, if it is our child
	}
	if err == nil {
		p.group = h.opts.Cgroups.GroupOf(name, id.PID)
		p.oom, _ = p.group.OOMKills()
		if err = h.keep(p); err == nil {
			return p, nil
		}
		p.handle.close()
		children.release(id.PID)
	}
	h.free(name)
	if errors.Is(err, os.ErrProcessDone) {
		return nil, &GoneError{Name: name, ID: id, Exit: h.recorded(id)}
	}
	return nil, fmt.Errorf("cannot adopt %q: %w", name, err)
}

// identify adds the start time to the id of a root that hung when Find found it.
func (h *Host) identify(name string, id ID) (ID, error) {
	if id.StartTime != 0 || id.BootID != h.bootID {
		return id, nil
	}
	c := h.census(0)
	switch stat := c.living[id.PID]; {
	case c.err != nil:
		return id, c.err
	case c.owner[id.PID] != name:
		return id, os.ErrProcessDone
	case stat.Hangs:
		return id, procfs.ErrHangs
	default:
		id.StartTime = stat.StartTime
		return id, nil
	}
}

// find opens the process that the id names. It returns os.ErrProcessDone if the process
// has ended.
func (p *Process) find() (pid int, err error) {
	if p.id.BootID != p.host.bootID {
		return 0, os.ErrProcessDone
	}
	if p.handle, err = openHandle(p.id.PID); err != nil {
		return 0, err
	}
	// The pidfd refers to one process from now on. If the start time is right, it is the
	// process that the id names.
	stat, err := procfs.Read(p.id.PID)
	if err == nil && stat.StartTime == p.id.StartTime {
		return p.id.PID, nil
	}
	p.handle.close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err // the process may live
	}
	return 0, os.ErrProcessDone
}

func (h *Host) recorded(id ID) Exit {
	entry, ok := exits.Find(h.opts.ExitDir, id.BootID, id.PID, id.StartTime)
	if !ok {
		return Exit{}
	}
	return Exit{Code: &entry.Code, Signal: syscall.Signal(max(0, -entry.Code)), At: entry.At}
}
