package modelpull

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// memoryLimit is the soft memory limit of modelfetch, which Go's garbage collector
// keeps as far as it can.
const memoryLimit = "GOMEMLIMIT=48MiB"

// child is a running modelfetch.
type child struct {
	cmd   *exec.Cmd
	in    *os.File // modelfetch's standard input; modelfetch ends when it is closed
	lines *bufio.Reader

	ended  func() (oomKilled bool) // called once, after Wait
	hangUp func()                  // closes in, once
	kill   *time.Timer             // kills modelfetch; hangUp starts it
}

func start(o Options) (*child, error) {
	args := append(slices.Clone(o.Program[1:]), flags(o.Selection)...)
	if o.Credentials != nil {
		args = append(args, "--credentials")
	}
	cmd := exec.Command(o.Program[0], append(args, "--", o.URI)...) //nolint:noctx // modelfetch ends when its standard input is closed
	cmd.Env = append(os.Environ(), memoryLimit)
	cmd.Stderr = o.Stderr
	if o.Store != nil {
		cmd.ExtraFiles = []*os.File{o.Store.Lock()} // the child owns the store too, so no other process changes it
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only the launcher, which ends the child
	cmd.WaitDelay = grace
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start modelfetch: %w", err)
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start modelfetch: %w", err), out.Close())
	}
	cmd.Stdin = theirs
	begin := o.Start
	if begin == nil {
		begin = startUnlimited
	}
	ended, err := begin(cmd)
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start modelfetch: %w", err), ours.Close())
	}
	lowerPriority(cmd.Process.Pid)
	c := &child{cmd: cmd, in: ours, lines: bufio.NewReader(out), ended: ended}
	c.hangUp = sync.OnceFunc(func() {
		_ = c.in.Close()
		c.kill = time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	})
	return c, nil
}

// startUnlimited starts modelfetch without limits of its own.
func startUnlimited(cmd *exec.Cmd) (end func() bool, err error) {
	return func() bool { return false }, cmd.Start()
}

// flags returns modelfetch's flags for a selection.
func flags(s modelref.Selection) (all []string) {
	for _, p := range s.Include {
		all = append(all, "--include="+p)
	}
	for _, p := range s.Exclude {
		all = append(all, "--exclude="+p)
	}
	return all
}

// read returns the child's next line.
func (c *child) read() (line fetchapi.Line, err error) {
	text, err := c.lines.ReadBytes('\n')
	if err != nil {
		return line, errEnded
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return line, fmt.Errorf("cannot read a line of modelfetch: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return line, nil
}

// prove makes the child ask the source whether it may read the model.
func (c *child) prove() error {
	asked := false
	for {
		line, err := c.read()
		switch {
		case err != nil:
			return err
		case line.Type == fetchapi.TypeManifest && !asked:
			asked = true
			if err := c.write(fetchapi.Line{Type: fetchapi.TypeProve}); err != nil {
				return err
			}
		case line.Type == fetchapi.TypeProved && asked:
			return nil
		case line.Type == fetchapi.TypeError && line.Error != nil:
			return line.Error
		case line.Type != fetchapi.TypeNote:
			return fmt.Errorf("modelfetch was asked whether it may read, and answered with a line of the type %q", line.Type)
		}
	}
}

func (c *child) write(line fetchapi.Line) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = c.in.Write(append(text, '\n'))
	switch {
	case errors.Is(err, syscall.EPIPE):
		return errEnded
	case err != nil:
		return fmt.Errorf("cannot answer modelfetch: %w", err)
	}
	return nil
}

var errEnded = errors.New("modelfetch ended before it was done; the fetched files stay, and the next pull resumes from them")

// grace is how long the child may take to end after hangUp.
const grace = 5 * time.Second

// end ends the child, and kills it when that takes too long.
func (c *child) end() (oomKilled bool) {
	c.hangUp()
	defer c.kill.Stop()
	_, _ = io.Copy(io.Discard, c.lines)
	_ = c.cmd.Wait()
	return c.ended()
}
