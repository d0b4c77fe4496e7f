package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Command is a program to start, as the root of a tree.
type Command struct {
	Name   string   // of the instance, unique among those of this launcher; see names
	Path   string   // of the program, with a slash
	Args   []string // argv, from argv[0]
	Env    []string // the whole environment, KEY=VALUE; the marks are added
	Dir    string   // working folder; empty: the launcher's
	Output *os.File // fd 1 and 2, nil for /dev/null; may be closed after Start. fd 0 is /dev/null
	Extra  *os.File // fd 3, nil for none; may be closed after Start
	// Scratch is the name of a variable that gives the program the path of an empty
	// folder of its own, which is removed when the tree is gone; empty: none.
	Scratch string
	// Socket is the path of the Unix socket at which the program is told to listen, as
	// Host.Socket returned it. It is in that folder. Empty: the program listens on none.
	Socket string
	// Public is the address at which clients reach the instance, "HOST:PORT", which the
	// environment tells as HOTSEAT_PUBLIC; empty: there is none.
	Public string
}

// isName reports whether a tree may have a name: that of an instance; before it HelperPrefix, for
// a helper. Names become parts of paths, and anybody can write any name into the environment of a
// process.
func isName(name string) bool { return launcherapi.IsID(strings.TrimPrefix(name, HelperPrefix)) }

// Start starts a process in a session and a control group of its own, with the
// marks HOTSEAT_INSTANCE (the name) and HOTSEAT_LAUNCHER in its environment. It
// returns when the program runs, or an error when the program cannot be run.
func (h *Host) Start(c Command) (*Process, error) {
	if err := h.reserve(c.Name); err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", c.Name, err)
	}
	p, err := h.start(c)
	if err != nil {
		h.free(c.Name)
		return nil, fmt.Errorf("cannot start %q: %w", c.Name, err)
	}
	return p, nil
}

func (h *Host) start(c Command) (*Process, error) {
	if err := CanBeRead(c.Path); err != nil {
		return nil, err
	}
	p, c, err := h.prepare(c)
	if err != nil {
		return nil, err
	}
	if err = p.fork(c); err == nil {
		if err = h.keep(p); err != nil {
			err = errors.Join(err, p.abandon())
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.group.Remove(h.open), h.removeFolders(c.Name))
	}
	return p, nil
}

// prepare makes the control group and the folder of a tree, before there is a root.
// The command that it returns has the whole environment.
func (h *Host) prepare(c Command) (*Process, Command, error) {
	scratch, err := h.makeScratch(c)
	if err != nil {
		return nil, c, err
	}
	c.Env = h.environment(c, scratch)
	if err := h.forgetSharedMemory(c.Name); err != nil { // of an earlier tree of that name, or of one of another launcher in a copied state folder
		return nil, c, errors.Join(err, h.removeFolders(c.Name))
	}
	group, err := h.opts.Cgroups.Create(c.Name)
	if err != nil {
		return nil, c, errors.Join(err, h.removeFolders(c.Name))
	}
	p := &Process{host: h, name: c.Name, group: group, done: make(chan struct{})}
	p.oom, _ = group.OOMKills()
	return p, c, nil
}

// fork makes the child. From its birth, this Process owns the child and holds its pidfd.
func (p *Process) fork(c Command) error {
	output := c.Output
	if output == nil {
		output = p.host.null
	}
	attr := syscall.ProcAttr{
		Dir:   c.Dir,
		Env:   c.Env,
		Files: []uintptr{p.host.null.Fd(), output.Fd(), output.Fd()},
	}
	if c.Extra != nil {
		attr.Files = append(attr.Files, c.Extra.Fd())
	}
	defer runtime.KeepAlive(output)
	defer runtime.KeepAlive(c.Extra)
	pidfd := -1
	pid, err := children.fork(func() (pid int, err error) {
		err = p.group.Start(func(sys *syscall.SysProcAttr) (err error) {
			sys.Setsid, sys.PidFD = true, &pidfd
			attr.Sys = sys
			pid, _, err = syscall.StartProcess(c.Path, c.Args, &attr)
			return err
		})
		return pid, err
	})
	if pid > 0 {
		return p.born(pid, pidfd, err)
	}
	if dir, dirErr := os.Stat(c.Dir); c.Dir != "" && (dirErr != nil || !dir.IsDir()) {
		return fmt.Errorf("cannot enter folder %s: %w", c.Dir, err)
	}
	return fmt.Errorf("cannot run %s: %w", c.Path, err)
}

// born fills in the facts of the child now that it runs. On an error the child is
// killed.
func (p *Process) born(pid, pidfd int, failed error) (err error) {
	p.id = ID{PID: pid, BootID: p.host.bootID}
	if p.handle, err = newHandle(pid, pidfd); err != nil {
		failed = errors.Join(failed, err, syscall.Kill(pid, syscall.SIGKILL))
		children.release(pid) // the child is reaped as a stray
		return failed
	}
	stat, err := procfs.Read(pid)
	if err = errors.Join(failed, err); err != nil {
		return errors.Join(err, p.abandon())
	}
	p.id.StartTime = stat.StartTime
	return nil
}

// abandon kills and reaps a child after a failed start.
func (p *Process) abandon() error {
	defer p.handle.close()
	defer children.release(p.id.PID)
	if err := p.handle.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if err := p.handle.wait(); err != nil {
		return err
	}
	_, err := p.handle.reap()
	return err
}
