package process

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Fork starts a command by having another process fork it. As after Start, the command
// has its own session, group, marks and supervision.
//
// spawn asks the other process to fork. Its arguments are the files of the control
// group and the environment with the marks: a process enters the group by writing "0"
// to each file. spawn returns the id of a child that leads its own session. The
// child's parent must have ended, so that the child is this process's. The child must
// wait: the caller lets it run once Fork has returned. Errors of spawn are wrapped.
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
		return nil, errors.Join(err, p.group.Kill(), p.group.Remove(ctx), h.removeFolders(c.Name))
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
