package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
)

// Helper is a program that the launcher runs beside its engines for a while. The
// launcher itself waits for the command, and then calls End.
type Helper struct {
	host  *Host
	name  string
	cmd   *exec.Cmd
	group *cgroup.Group
	oom   uint64
	// Unlimited says why the helper's memory is not limited. It is nil if the memory is
	// limited, or if no limit was asked for.
	Unlimited error
}

// StartHelper starts a command in a session and a control group of its own, and with
// the marks by which the next launcher finds and ends it. The name begins with
// HelperPrefix. If memory is above 0, StartHelper limits the group to so many bytes, as
// cgroup.Group.LimitMemory does. If that fails, Helper.Unlimited says why.
func (h *Host) StartHelper(name string, memory int64, cmd *exec.Cmd) (*Helper, error) {
	if !strings.HasPrefix(name, HelperPrefix) {
		return nil, fmt.Errorf("cannot start the helper %q: its name must begin with %s", name, HelperPrefix)
	}
	if err := h.reserve(name); err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", name, err)
	}
	helper := &Helper{host: h, name: name, cmd: cmd}
	if err := helper.start(memory); err != nil {
		h.free(name)
		return nil, fmt.Errorf("cannot start %q: %w", name, err)
	}
	return helper, nil
}

func (p *Helper) start(memory int64) (err error) {
	if err = CanBeRead(p.cmd.Path); err != nil {
		return err
	}
	if p.group, err = p.host.opts.Cgroups.Create(p.name); err != nil {
		return err
	}
	if memory > 0 {
		p.Unlimited = p.group.LimitMemory(memory)
	}
	p.oom, _ = p.group.OOMKills()
	p.cmd.Env = p.host.environment(Command{Name: p.name, Env: p.cmd.Environ()}, "")
	_, err = children.fork(func() (pid int, err error) {
		err = p.group.Start(func(sys *syscall.SysProcAttr) error {
			sys.Setsid = true
			p.cmd.SysProcAttr = sys
			return p.cmd.Start()
		})
		if p.cmd.Process != nil {
			pid = p.cmd.Process.Pid
		}
		return pid, err
	})
	if err != nil && p.cmd.Process != nil { // it runs, and a thread of ours could not leave its group
		err = errors.Join(err, p.cmd.Process.Kill())
		_ = p.cmd.Wait() // it was killed
		children.release(p.cmd.Process.Pid)
	}
	if err != nil {
		return errors.Join(err, p.group.Remove(p.host.open))
	}
	return nil
}

// OOMKilled reports whether the kernel has killed a process of the helper for want of
// memory. It is false if the helper's group does not count that.
func (p *Helper) OOMKilled() bool {
	n, ok := p.group.OOMKills()
	return ok && n > p.oom
}

// End kills the processes that the helper has left behind, removes its group and frees
// its name. Call it once the command has been waited for. If processes do not end
// within two seconds, End logs that and leaves them to the next launcher.
func (p *Helper) End() {
	children.release(p.cmd.Process.Pid)
	ctx, cancel := context.WithTimeout(context.Background(), lastWait)
	defer cancel()
	noRoot := func(context.Context) error { return nil }
	if err := p.host.end(ctx, p.name, p.group, 0, noRoot); err != nil {
		p.host.opts.Logger.Warn("cannot end processes that a helper left behind", "helper", p.name, "error", err)
	}
	p.host.free(p.name)
}

// dropHelperGroups removes the empty groups of an earlier launcher's helpers. A group
// that has processes stays, for Find.
func (h *Host) dropHelperGroups() error {
	names, err := h.opts.Cgroups.List()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	errs := []error{err}
	for _, name := range names {
		if !strings.HasPrefix(name, HelperPrefix) {
			continue
		}
		if err := h.opts.Cgroups.Group(name).Remove(over); !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
