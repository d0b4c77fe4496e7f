// Package process runs the process trees of instances: it starts and adopts
// them, sees their end at once, and stops the whole of a tree.
//
// A process belongs to the tree of an instance if it is in the instance's control group
// or in the session of the root, if it descends from such a process, or if it was
// started with the instance's marks in its environment. It also belongs to the tree if
// that was so when the stop of the tree began. Each process of the machine belongs to
// one instance at most.
//
// Without control groups (cgroup.None), a process has no link to its tree once it has
// left the session, cleared its environment and lost its parent. Then the stop of the
// tree does not find it. With control groups it does.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/launcher/internal/machine/process/reaper"
)

// HelperPrefix begins the names of trees that are helpers of the launcher, not
// instances; helpers that an earlier launcher left are of no use to the next.
const HelperPrefix = "@"

// ID names one process for as long as the machine is up: a process id alone
// may be given to another process later.
type ID struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks since boot, field 22 of /proc/PID/stat, see proc_pid_stat(5)
	BootID    string `json:"boot_id"`    // /proc/sys/kernel/random/boot_id
}

// Exit says how the root of a tree ended.
type Exit struct {
	Code      *int           // exit code, −N for signal N; nil if it is unknown
	Signal    syscall.Signal // that ended the root; 0: none did
	OOMKilled bool           // the kernel killed a process of this tree for want of memory, as far as that is known
	At        time.Time
}

// Process is the root of one tree. End each by Stop or Kill, also when the root has
// exited by itself: that ends the processes that the root left behind, and frees
// the name.
type Process struct {
	host   *Host
	name   string
	id     ID
	group  *cgroup.Group
	handle *handle
	seen   []procfs.Stat // the tree when its stop began; guarded by the host's lock
	oom    uint64        // deaths for want of memory in the group before the process began
	killed atomic.Bool   // Kill was called, so a death by SIGKILL says nothing about memory
	done   chan struct{}
	exit   Exit // written before done is closed
}

// ID of the root.
func (p *Process) ID() ID { return p.id }

// Done is closed when the root has exited and its Exit is known. It stays
// open when the Host is closed first.
func (p *Process) Done() <-chan struct{} { return p.done }

// ended reports whether the root is known to have exited.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Exit says how the root ended; the zero Exit before Done is closed.
func (p *Process) Exit() Exit {
	if p.ended() {
		return p.exit
	}
	return Exit{}
}

// Signal sends a signal to the root; os.ErrProcessDone when it has exited or
// the Host is closed.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.handle.signal(sig)
}

// Pids are the living processes of the tree, in ascending order: those in its
// control group, or, where there is no group or an empty one, those found in all of
// /proc.
func (p *Process) Pids() []int {
	pids, err := p.group.Procs()
	if err == nil && len(pids) > 0 {
		slices.Sort(pids)
		return slices.Compact(pids)
	}
	pids = nil
	for _, stat := range p.host.census(p.id.StartTime).of(p.name) {
		pids = append(pids, stat.PID)
	}
	slices.Sort(pids)
	return pids
}

// watch waits for the end of the root, reaps the root when it is our child, and
// closes done. It ends early when the Host is closed.
func (p *Process) watch() {
	defer p.host.watchers.Done()
	if err := p.handle.wait(); err != nil {
		children.release(p.id.PID) // the next Host reaps it
		return
	}
	p.exit = Exit{At: time.Now()}
	if code, ok := p.reap(); ok {
		p.exit.Code = &code
		p.exit.Signal = syscall.Signal(max(0, -code))
	}
	p.exit.OOMKilled = p.oomKilled()
	p.handle.close()
	close(p.done)
	p.host.reapStrays()
}

func (p *Process) reap() (code int, ok bool) {
	status, err := p.handle.reap()
	children.release(p.id.PID)
	if err == nil {
		return exits.Code(status), true
	}
	if p.host.opts.ExitDir == "" {
		return 0, false
	}
	return p.exitInTime()
}

// recordedExit waits for the record of the exit.
func (p *Process) recordedExit() (exits.Entry, bool) {
	ctx, cancel := context.WithTimeout(p.host.open, p.host.opts.RecordWait)
	defer cancel()
	return exits.Await(ctx, p.host.opts.ExitDir, p.id.BootID, p.id.PID, p.id.StartTime)
}

// oomKilled uses the group's own count of deaths for want of memory, if there is one.
// Otherwise only the launcher's whole group has a count. If that has risen since the
// last exit, oomKilled attributes the rise to a root that died of a SIGKILL from
// another sender.
func (p *Process) oomKilled() bool {
	if n, ok := p.group.OOMKills(); ok {
		return n > p.oom
	}
	rose := p.host.oomRose()
	return rose && p.exit.Signal == syscall.SIGKILL && !p.killed.Load()
}

// handle is a pidfd (pidfd_open(2)) in the runtime's poller. A wait on it blocks no
// thread, and it never refers to another process later.
type handle struct {
	pid  int
	file *os.File
	conn syscall.RawConn
}

// openHandle opens the pidfd of a living or unreaped process; os.ErrProcessDone
// when there is none.
func openHandle(pid int) (*handle, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: the id of a thread
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	return newHandle(pid, fd)
}

// newHandle takes over a pidfd.
func newHandle(pid, fd int) (*handle, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot watch process %d: %w", pid, err)
	}
	return &handle{pid: pid, file: file, conn: conn}, nil
}

func (h *handle) close() { _ = h.file.Close() }

// wait returns when the process has exited; os.ErrDeadlineExceeded when cut was
// called before that, os.ErrClosed when the handle is closed.
func (h *handle) wait() error {
	exited := false
	poll := func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		exited = err == nil && n == 1
		return exited
	}
	err := h.conn.Read(poll)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = h.conn.Control(func(fd uintptr) { poll(fd) }) // a cut read does not look
	}
	if exited {
		return nil
	}
	return err
}

// cut ends all waits, now and later.
func (h *handle) cut() { _ = h.file.SetReadDeadline(time.Unix(1, 0)) }

func (h *handle) signal(sig syscall.Signal) error {
	var sent error
	err := h.conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if err != nil || errors.Is(sent, unix.ESRCH) {
		return os.ErrProcessDone // the handle is closed: the process was seen to exit
	}
	if sent != nil {
		return fmt.Errorf("cannot signal process %d: %w", h.pid, sent)
	}
	return nil
}

// reap returns the status of an exited child; ECHILD when the process is not our child.
// It first checks that by the descriptor. After that its id is safe to use, because only
// the owner reaps the process.
func (h *handle) reap() (status syscall.WaitStatus, err error) {
	control := h.conn.Control(func(fd uintptr) {
		for {
			err = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	if err = errors.Join(control, err); err != nil {
		return 0, fmt.Errorf("cannot reap process %d: %w", h.pid, err)
	}
	status, _, err = reaper.Wait(h.pid)
	return status, err
}
