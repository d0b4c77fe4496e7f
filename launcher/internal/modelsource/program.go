package modelsource

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// program is a model for whose scheme somebody has named a program; see the head of
// spec/fetchapi/program.go. What it says is not believed where it can be checked.
type program struct {
	Options
	path, scheme, uri string
	revision          string
	files             []fetchapi.File
}

func newProgram(uri, scheme, path string, o Options) (Source, error) {
	if o.Token != "" {
		return nil, invalid("the source of %s:// is a program, which takes no token: what it needs it finds in its environment", scheme)
	}
	return &program{Options: o, path: path, scheme: scheme, uri: uri}, nil
}

// Resolve leaves everything but revision and files to us: no program can give out what
// it has for a model of another address.
func (s *program) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	c, err := s.ask(ctx, nil, fetchapi.AskResolve, s.uri)
	if err != nil {
		return nil, err
	}
	if err := c.wait(); err != nil {
		return nil, err
	}
	m := c.heard.manifest
	switch {
	case m == nil:
		return nil, s.wrong("was asked to resolve the model, and ended without a manifest")
	case m.Revision == "":
		return nil, s.wrong("gives a manifest without a revision, so that nobody could tell when the model has changed")
	}
	s.revision, s.files = m.Revision, m.Files
	return &fetchapi.Manifest{URI: s.uri, Revision: m.Revision, Files: m.Files}, nil
}

func (s *program) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	in, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c, err := s.ask(ctx, theirs, fetchapi.AskOpen, s.uri, s.revision, s.files[n].Path, strconv.FormatInt(offset, 10))
	_ = theirs.Close() // the program has it
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	r := &written{question: c, in: in}
	context.AfterFunc(c.ctx, func() { _ = in.SetReadDeadline(time.Unix(1, 0)) }) // whoever has it open still
	// A program that refuses has written nothing: that is told before it counts as open.
	first := make([]byte, 1)
	if _, err := io.ReadFull(r, first); err != nil && !errors.Is(err, io.EOF) {
		_ = r.Close() // err says more
		return nil, err
	} else if err == nil {
		r.first = first
	}
	return &Stream{ReadCloser: r, Offset: offset, Size: -1}, nil
}

// written is what a program writes to descriptor 3.
type written struct {
	*question
	in    *os.File
	first []byte // was read already
	over  error  // as the last Read said
}

func (c *written) Read(b []byte) (n int, err error) {
	if len(c.first) > 0 {
		n = copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	if c.over != nil {
		return 0, c.over
	}
	c.patience.begin() // from here on it is the program that is waited for, and not we
	n, err = c.in.Read(b)
	if err == nil {
		c.patience.end()
	} else {
		if c.over = c.wait(); c.over == nil {
			c.over = err
		}
		err = c.over
	}
	return n, err
}

// Close ends the program, of which no more is needed.
func (c *written) Close() error {
	c.cancel(errEnough)
	_ = c.wait() // what it says of its end is of no use
	return c.in.Close()
}

// question is one question to a program.
type question struct {
	source *program
	cmd    *exec.Cmd
	heard  heard
	stderr tail

	ctx      context.Context //nolint:containedctx // the life of the program
	cancel   context.CancelCauseFunc
	patience patience

	waited bool
	err    error
}

// patience is how long a program may be silent while it is waited for.
type patience struct {
	stall time.Duration
	mu    sync.Mutex
	timer *time.Timer
	waits bool
}

func (p *patience) begin() { p.set(true) }
func (p *patience) end()   { p.set(false) }

func (p *patience) set(waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits = waits; waits {
		p.timer.Reset(p.stall)
	} else {
		p.timer.Stop()
	}
}

// alive: the program has said something.
func (p *patience) alive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits {
		p.timer.Reset(p.stall)
	}
}

var (
	errMute   = errors.New("the program is silent")
	errEnough = errors.New("no more of it is needed")
)

// lingering is how long what a program has started may hold its outputs open when the
// program has ended.
const lingering = time.Second

// ask runs the program; content, if any, is its descriptor 3.
func (s *program) ask(ctx context.Context, content *os.File, args ...string) (*question, error) {
	c := &question{source: s}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.patience = patience{stall: s.Stall, waits: true, timer: time.AfterFunc(s.Stall, func() { c.cancel(errMute) })}
	c.heard = heard{note: s.Note, alive: c.patience.alive, stop: func() { c.cancel(errEnough) }}
	c.cmd = exec.CommandContext(c.ctx, s.path, args...)
	c.cmd.Env = fetchapi.WithoutCredentials(os.Environ())
	c.cmd.Stdout, c.cmd.Stderr = &c.heard, &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.WaitDelay = lingering
	if content != nil {
		c.cmd.ExtraFiles = []*os.File{content}
	}
	var err error
	if _, err = c.cmd.StdinPipe(); err == nil { // it ends when we do
		err = c.cmd.Start()
	}
	if err != nil {
		c.patience.end()
		c.cancel(err)
		return nil, invalid("cannot run the source of %s://: %v; see --model-source", s.scheme, err)
	}
	return c, nil
}

// wait waits for the end of the program, and says what was wrong.
func (c *question) wait() error {
	if c.waited {
		return c.err
	}
	err := c.cmd.Wait()
	c.patience.end()
	cause := context.Cause(c.ctx)
	c.cancel(nil)
	c.waited, c.err = true, c.judge(err, cause)
	return c.err
}

func (c *question) judge(err, cause error) error {
	switch {
	case c.heard.wrong != nil:
		return c.source.wrong("%v", c.heard.wrong)
	case c.heard.refusal != nil:
		return c.source.refused(c.heard.refusal)
	case errors.Is(cause, errMute):
		return c.source.unavailable("has said and written nothing for %s", c.source.Stall)
	case cause != nil:
		return cause
	case err != nil:
		return c.source.unavailable("has failed: %v%s", err, c.stderr.said())
	}
	return nil
}

func (s *program) wrong(format string, args ...any) error {
	return invalid("the source of %s://, %s, "+format, append([]any{s.scheme, s.path}, args...)...)
}

func (s *program) unavailable(format string, args ...any) error {
	return &TemporaryError{Cause: reasonf(fetchapi.ReasonUnavailable, "the source of %s://, %s, "+format, append([]any{s.scheme, s.path}, args...)...)}
}

// refused is the error that the program has told.
func (s *program) refused(e *fetchapi.Error) error {
	told := reasonf(e.Reason, "the source of %s:// says: %s", s.scheme, e.Detail)
	switch e.Reason {
	case fetchapi.ReasonChanged:
		return ErrChanged
	case fetchapi.ReasonUnavailable:
		return &TemporaryError{Cause: told}
	case fetchapi.ReasonInvalid, fetchapi.ReasonNotFound, fetchapi.ReasonAccessDenied, fetchapi.ReasonInternal:
		return told
	}
	return s.wrong("gives the unknown reason %q for an error: %s", e.Reason, e.Detail)
}
