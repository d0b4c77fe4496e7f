package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// ErrNameTaken is returned for a name whose tree has not been ended by Stop or
// Kill.
var ErrNameTaken = errors.New("a process of this name exists already")

// ErrClosed is returned by calls on a Host that is closed.
var ErrClosed = errors.New("the process host is closed")

// Options of a Host.
type Options struct {
	// Mark names this launcher: nobody can guess it, and it is the same after a restart.
	Mark string
	// Earlier are the trees, by name, that an earlier release of the launcher started.
	Earlier map[string]EarlierTree
	// Cgroups keeps the groups of instances; the caller closes it after the Host.
	Cgroups *cgroup.Manager
	// ExitDir is the folder where `launcher init` records exits, and where the
	// exits of orphans that this process reaps are recorded. Empty: none.
	ExitDir string
	// RecordWait bounds the wait until another process has recorded an exit in ExitDir.
	// 0: only this process records exits. Then the end of an adopted process that is no
	// child is reported at once, without its exit code.
	RecordWait time.Duration
	// ScratchDir holds the folders that commands get with Command.Scratch and
	// Command.Socket. If its path is too long for the addresses of sockets, or its filesystem
	// has no sockets, a folder of the launcher's own in the temporary folder holds them. Empty:
	// commands get none.
	ScratchDir string
	// SharedDir is where the Host records which files of shared memory each tree has
	// mapped, for a later Host that removes them when all processes died at once. Empty:
	// it does not.
	SharedDir string
	// Logger logs failures in the background: strays that cannot be reaped, and folders
	// of ended trees that cannot be removed.
	Logger *slog.Logger
}

// EarlierTree is a tree whose processes carry the mark of an earlier release. Others can
// guess that mark: it counts in the session of the root alone, or anywhere if the id of the
// root is not known.
type EarlierTree struct {
	Root ID
	Mark string
}

// Host runs the process trees of one launcher.
type Host struct {
	opts     Options
	bootID   string
	null     *os.File
	recorder *exits.Recorder // nil without ExitDir

	noSockets string // why ScratchDir cannot hold sockets; empty: it can

	open     context.Context //nolint:containedctx // the Host's own life, ended by Close
	shut     context.CancelFunc
	watchers sync.WaitGroup

	folders sync.Mutex // held while folders of trees are made and removed

	mu        sync.Mutex
	processes map[string]*Process // by name; nil while one is being started
	oomSeen   uint64              // deaths for want of memory in the launcher's own group
}

// NewHost makes this process the reaper of its orphaned descendants
// (PR_SET_CHILD_SUBREAPER) for good. The Host reaps orphans as soon as they end. It does
// not reap children that other code started with os/exec in the launcher's own session.
// Children inherit no descriptors beyond the first three.
func NewHost(opts Options) (*Host, error) {
	if !isName(opts.Mark) {
		return nil, fmt.Errorf("cannot make a process host: invalid mark %q", opts.Mark)
	}
	h := &Host{opts: opts, processes: map[string]*Process{}}
	var err error
	if h.bootID, err = procfs.BootID(); err != nil {
		return nil, fmt.Errorf("cannot make a process host: %w", err)
	}
	if opts.ExitDir != "" {
		if h.recorder, err = exits.NewRecorder(opts.ExitDir, h.bootID); err != nil {
			return nil, fmt.Errorf("cannot make a process host: %w", err)
		}
	}
	if opts.ScratchDir != "" {
		h.noSockets = NoSockets(opts.ScratchDir)
	}
	if h.noSockets != "" {
		opts.Logger.Info("the state folder cannot hold the sockets of engines; a folder of the launcher's own in the temporary folder holds them instead", "folder", opts.ScratchDir, "reason", h.noSockets)
	}
	if h.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("cannot make a process host: %w", err)
	}
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		opts.Logger.Warn("cannot keep children from inheriting descriptors", "error", err) // Linux before 5.11
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		h.null.Close()
		return nil, fmt.Errorf("cannot become the reaper of orphans: %w", err)
	}
	if err := h.dropHelperGroups(); err != nil {
		opts.Logger.Warn("cannot remove control groups of an earlier launcher's helpers", "error", err)
	}
	h.oomSeen, _ = opts.Cgroups.OOMKills()
	h.open, h.shut = context.WithCancel(context.Background())
	h.watchers.Add(1)
	go h.reapOnSignal()
	if opts.SharedDir != "" {
		h.watchers.Add(1)
		go h.followSharedMemory()
	}
	return h, nil
}

// reapOnSignal reaps strays whenever the kernel reports that a child has ended.
func (h *Host) reapOnSignal() {
	defer h.watchers.Done()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		h.reapStrays()
		select {
		case <-ended:
		case <-h.open.Done():
			return
		}
	}
}

func (h *Host) reapStrays() {
	var reaped []func() error // not while no process can be started
	err := children.reapStrays(func(stat procfs.Stat, status syscall.WaitStatus) {
		if h.recorder != nil {
			reaped = append(reaped, func() error { return h.recorder.Record(stat.PID, stat.StartTime, status) })
		}
	})
	if err != nil {
		h.opts.Logger.Error("cannot reap orphans", "error", err)
	}
	if len(reaped) == 0 {
		return
	}
	if !inTime(diskTime, func() {
		for _, record := range reaped {
			if err := record(); err != nil {
				h.opts.Logger.Error("cannot record the exit of an orphan", "error", err)
			}
		}
	}) {
		h.opts.Logger.Warn("exits are not recorded yet, since the disk does not answer", "count", len(reaped))
	}
}

// closeTime bounds how long Close waits: /proc does not answer for a process whose memory is
// locked in the kernel.
const closeTime = 5 * time.Second

// Close stops watching, and waits for the goroutines that watch, for at most closeTime.
// Children run on: a later Host can adopt them.
func (h *Host) Close() error {
	h.mu.Lock()
	h.shut()
	for _, p := range h.processes {
		if p != nil {
			p.handle.close()
		}
	}
	h.mu.Unlock()
	watched := make(chan struct{})
	go func() { h.watchers.Wait(); close(watched) }()
	select {
	case <-watched:
		return h.null.Close()
	case <-time.After(closeTime):
		return errors.Join(errors.New("processes are still being looked at: /proc does not answer for one of them"), h.null.Close())
	}
}

// reserve keeps a name for a process that is being started or adopted.
func (h *Host) reserve(name string) error {
	if !isName(name) {
		return fmt.Errorf("invalid name %q", name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Err() != nil {
		return ErrClosed
	}
	if _, taken := h.processes[name]; taken {
		return ErrNameTaken
	}
	h.processes[name] = nil
	return nil
}

// free gives a reserved name back.
func (h *Host) free(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.processes, name)
}

// keep stores a process under its reserved name, and watches it.
func (h *Host) keep(p *Process) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Err() != nil {
		return ErrClosed
	}
	h.processes[p.name] = p
	h.watchers.Add(1)
	go p.watch()
	return nil
}

// forget frees the name of a process whose tree is gone.
func (h *Host) forget(p *Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.processes[p.name] == p {
		delete(h.processes, p.name)
	}
}

// oomRose reports whether processes of the launcher's own group have died for want of
// memory since the last call.
func (h *Host) oomRose() bool {
	n, _ := h.opts.Cgroups.OOMKills()
	h.mu.Lock()
	defer h.mu.Unlock()
	rose := n > h.oomSeen
	h.oomSeen = n
	return rose
}
