package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// linger is how long processes that outlive the root may take to end by themselves.
// Python's resource tracker, for example, removes shared memory then.
const linger = 200 * time.Millisecond

// lastWait is how long a kill waits for the end of the tree when its context
// was over before it began.
const lastWait = 2 * time.Second

// Stop asks the root to end (SIGTERM), and returns when the whole tree is gone:
//
//	root ends within the grace     what it left has 200 ms, never more than the grace, then SIGKILL
//	root dies of the SIGTERM       it was a wrapper around the engine, or an engine that was not
//	                               ready to handle it: what it left gets a SIGTERM too, and has
//	                               what is left of the grace
//	root has ended before          the same
//	grace is over, or zero         SIGKILL to the whole tree
//	ctx ends within the grace      SIGKILL to the whole tree, and at most two seconds to be gone
//	ctx ends after the SIGKILL     returns at once
//
// The error says why the tree may not be gone; it wraps the context's error when
// processes are still there. Stop may be called again. With a context that never
// ends it waits for ever for a process that the kernel cannot end.
func (p *Process) Stop(ctx context.Context, grace time.Duration) error {
	if grace > 0 {
		graceful, cancel := context.WithTimeout(ctx, grace)
		defer cancel()
		if err := p.lookAround(); err != nil {
			return fmt.Errorf("cannot stop %q: %w", p.name, err)
		}
		p.endGracefully(graceful)
	}
	return p.Kill(ctx)
}

// lookAround records the processes of the tree while their parents live. If a process
// has left the session and cleared its environment, only its parent links it to the
// tree. Processes that an earlier call recorded are found again.
func (p *Process) lookAround() error {
	c := p.host.census(p.id.StartTime)
	if c.err != nil {
		return c.err
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	p.seen = c.of(p.name)
	return nil
}

// endGracefully returns when the tree has ended by itself, or ctx ends.
func (p *Process) endGracefully(ctx context.Context) {
	_ = p.Signal(syscall.SIGTERM) // on an error too the kill follows
	select {
	case <-p.done:
	case <-p.host.open.Done():
		return
	case <-ctx.Done():
		return
	}
	unhandled := p.Exit().Signal == syscall.SIGTERM
	if !unhandled {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, linger)
		defer cancel()
	}
	for ctx.Err() == nil {
		seen := p.host.census(p.id.StartTime).of(p.name)
		members, err := hold(seen)
		if unhandled {
			for _, m := range members {
				_ = m.signal(syscall.SIGTERM) // as above
			}
		}
		waitAll(ctx, members)
		if len(seen) == 0 || err != nil {
			return
		}
	}
}

// Kill sends SIGKILL to the whole tree and returns when it is gone; ctx as in Stop.
func (p *Process) Kill(ctx context.Context) error {
	p.killed.Store(true)
	if err := p.host.end(ctx, p.name, p.group, p.id.StartTime, p.awaitExit); err != nil {
		return fmt.Errorf("cannot kill %q: %w", p.name, err)
	}
	p.host.forget(p)
	return nil
}

func (p *Process) awaitExit(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-p.host.open.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("process %d has not ended: %w", p.id.PID, ctx.Err())
	}
}

// Clear kills the whole tree of a name that has no Process here, such as a tree
// that Find found, or the rest of a tree whose root has ended; it returns when the
// tree is gone. ctx as in Stop; no tree is no error.
func (h *Host) Clear(ctx context.Context, name string) error {
	if err := h.reserve(name); err != nil {
		return fmt.Errorf("cannot clear %q: %w", name, err)
	}
	defer h.free(name)
	group := h.opts.Cgroups.Group(name)
	for _, stat := range h.census(0).of(name) {
		group = h.opts.Cgroups.GroupOf(name, stat.PID)
	}
	noRoot := func(context.Context) error { return nil }
	if err := h.end(ctx, name, group, 0, noRoot); err != nil {
		return fmt.Errorf("cannot clear %q: %w", name, err)
	}
	return nil
}

// slipAway is how long a group may take to become empty before end looks for processes
// again.
const slipAway = 50 * time.Millisecond

// end kills a tree, waits for the exit of its root, and removes its group.
func (h *Host) end(
	ctx context.Context, name string, group *cgroup.Group, since uint64, rootExit func(context.Context) error,
) error {
	ctx, cancel := killing(ctx)
	defer cancel()
	defer h.reapStrays()
	first := h.census(since)
	left := append(sharedMemory(first.of(name)), h.recordedInTime(name)...)
	killUsers(ctx, first.of(name))
	for ; ; first = h.census(since) {
		if err := h.killTree(ctx, name, group, since, first); err != nil {
			return err
		}
		if err := rootExit(ctx); err != nil {
			return err
		}
		removeAll(left)
		soon, cancel := context.WithTimeout(ctx, slipAway)
		err := group.Remove(soon)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil && (ctx.Err() != nil || !empty(group)) {
			return err
		}
		if err := errors.Join(err, h.removeFolders(name)); err != nil {
			h.opts.Logger.Warn("cannot remove the folders of a process tree that has ended", "name", name, "error", err)
		}
		return nil
	}
}

// empty reports whether a group is known to hold no process.
func empty(group *cgroup.Group) bool {
	pids, err := group.Procs()
	return err == nil && len(pids) == 0
}

// killing is the context for a kill: ctx, or, when that has ended already, a new
// one of lastWait.
func killing(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lastWait)
}

// killTree kills until no process of the tree is left. It kills the group in one step
// if the kernel can, and processes outside of it one by one, parents before their
// children. A process with a pending SIGKILL forks no more, and the next census finds
// its earlier children. After a census that is blurred, or that a process was hidden
// from, and that finds no process, killTree takes another. c is the first census, which
// the caller has just taken.
func (h *Host) killTree(ctx context.Context, name string, group *cgroup.Group, since uint64, c *census) error {
	for looks := 0; looks < 2; c = h.census(since) {
		if err := group.Kill(); err != nil {
			return err
		}
		if c.err != nil {
			return c.err
		}
		seen := c.of(name)
		if len(seen) == 0 {
			if !c.blurred && !c.hidden {
				return nil
			}
			looks++
			continue
		}
		looks = 0
		members, err := hold(seen)
		errs := []error{err}
		for _, m := range members {
			if err := m.signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
		}
		left := waitAll(ctx, members)
		h.reapStrays()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if left != nil {
			return fmt.Errorf("%s after SIGKILL: %w", notEnded(left), ctx.Err())
		}
	}
	return nil
}

// notEnded says which processes have not ended, and which of them the kernel keeps: only
// the kernel ends that.
func notEnded(pids []int) string {
	text := fmt.Sprintf("processes %v have not ended", pids)
	var kept []int
	for _, pid := range pids {
		if procfs.Sleeps(pid) {
			kept = append(kept, pid)
		}
	}
	if len(kept) > 0 {
		text += fmt.Sprintf(" (%v are in uninterruptible sleep, state D: a driver or a disk does not answer, see the kernel log)", kept)
	}
	return text
}

// hold opens the pidfds of the seen processes that still live. The others have ended,
// and may have left children. A process that hangs has ended no more than the read of its
// start time.
func hold(seen []procfs.Stat) (held []*handle, err error) {
	var errs []error
	for _, stat := range seen {
		h, err := openHandle(stat.PID)
		if err != nil {
			if !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
			continue
		}
		now, err := procfs.Read(stat.PID)
		if err == nil && now.StartTime == stat.StartTime || stat.Hangs && errors.Is(err, procfs.ErrHangs) {
			held = append(held, h)
			continue
		}
		h.close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return held, errors.Join(errs...)
}

// waitAll waits until all processes have exited, and closes their handles. When ctx
// ends first it returns the processes that have not.
func waitAll(ctx context.Context, held []*handle) (left []int) {
	defer context.AfterFunc(ctx, func() {
		for _, h := range held {
			h.cut()
		}
	})()
	for _, h := range held {
		if h.wait() != nil {
			left = append(left, h.pid)
		}
		h.close()
	}
	return left
}
