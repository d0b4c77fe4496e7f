package process

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Fork starts a command by having another process fork it, as Start does by exec:
// with its own session, group, marks and supervision. spawn asks that process to
// fork. spawn is given the files of the control group, by writing "0" to each of
// which a process enters the group, and the environment with the marks. It returns
// the id of a child that leads a session of its own, whose parent has ended (so
// that the child is this process's), and that waits to be told to run: the caller
// tells the child when Fork has returned. Errors of spawn are wrapped.
func (h *Host) Fork(c Command, spawn func(enter []*os.File, env []string) (ID, error)) (*Process, error) {
	if err := h.reserve(c.Name); err != nil {
		return nil, fmt.Errorf("cannot fork %q: %w", c.Name, err)
	}
	p, err := h.forkBy(c, spawn)
	if err != nil {
		h.free(c.Name)
		return nil, fmt.Errorf("cannot fork %q: %w", c.Name, err)
	}
	return p, nil
}

func (h *Host) forkBy(c Command, spawn func([]*os.File, []string) (ID, error)) (*Process, error) {
	p, c, err := h.prepare(c)
	if err != nil {
		return nil, err
	}
	if err := p.takeOver(c, spawn); err != nil {
		ctx, cancel := context.WithTimeout(h.open, lastWait)
		defer cancel()
		return nil, errors.Join(err, p.group.Kill(), p.group.Remove(ctx), h.removeScratch(c.Name))
	}
	return p, nil
}

func (p *Process) takeOver(c Command, spawn func([]*os.File, []string) (ID, error)) error {
	enter, err := p.group.Doors()
	if err != nil {
		return err
	}
	defer func() {
		for _, door := range enter {
			_ = door.Close() // nothing is buffered
		}
	}()
	if p.id, err = spawn(enter, c.Env); err != nil {
		return err
	}
	p.id.BootID = p.host.bootID
	if _, err := children.fork(p.find); err != nil {
		return fmt.Errorf("cannot take over the forked process %d: %w", p.id.PID, err)
	}
	if err := p.host.keep(p); err != nil {
		return errors.Join(err, p.abandon())
	}
	return nil
}
