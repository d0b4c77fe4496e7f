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

// memory is what Go's collector keeps modelfetch to, as far as it can.
const memory = "GOMEMLIMIT=48MiB"

// child is modelfetch.
type child struct {
	cmd   *exec.Cmd
	in    *os.File // its standard input: it ends when that does
	lines *bufio.Reader

	ended  func() (oomKilled bool) // to be called once it has been waited for
	hangUp func()                  // tells it to end, once
	kill   *time.Timer             // armed when it is told
}

func start(o Options) (*child, error) {
	args := append(slices.Clone(o.Program[1:]), flags(o.Selection)...)
	if o.Credentials != nil {
		args = append(args, "--credentials")
	}
	cmd := exec.Command(o.Program[0], append(args, "--", o.URI)...) //nolint:noctx // it ends when its standard input does
	cmd.Env = append(os.Environ(), memory)
	cmd.Stderr = o.Stderr
	if o.Store != nil {
		cmd.ExtraFiles = []*os.File{o.Store.Lock()} // nobody else changes the folder while the child does
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent, which ends it
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
		begin = plainly
	}
	ended, err := begin(cmd)
	_ = theirs.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start modelfetch: %w", err), ours.Close())
	}
	lower(cmd.Process.Pid)
	c := &child{cmd: cmd, in: ours, lines: bufio.NewReader(out), ended: ended}
	c.hangUp = sync.OnceFunc(func() {
		_ = c.in.Close()
		c.kill = time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
	})
	return c, nil
}

// plainly starts a child that has no limits of its own.
func plainly(cmd *exec.Cmd) (end func() bool, err error) {
	return func() bool { return false }, cmd.Start()
}

// flags are those by which modelfetch is told a selection.
func flags(s modelref.Selection) (all []string) {
	for _, p := range s.Include {
		all = append(all, "--include="+p)
	}
	for _, p := range s.Exclude {
		all = append(all, "--exclude="+p)
	}
	return all
}

// read gives the child's next line.
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

// prove has the child ask the source whether it may read.
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
			return fmt.Errorf("modelfetch was asked whether it may read, and says a line of the type %q", line.Type)
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

var errEnded = errors.New("modelfetch has ended without having finished; what it has fetched stays, to be resumed")

// grace is how long the child may take to end when it has been told to.
const grace = 5 * time.Second

// end ends the child, by force when it takes too long.
func (c *child) end() (oomKilled bool) {
	c.hangUp()
	defer c.kill.Stop()
	_, _ = io.Copy(io.Discard, c.lines)
	_ = c.cmd.Wait()
	return c.ended()
}
