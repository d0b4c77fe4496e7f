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

// program is a model whose scheme has a program as its source; see the head of
// spec/fetchapi/program.go. Its output is checked as far as possible.
type program struct {
	Options
	path, scheme, uri string
	revision          string
	files             []fetchapi.File
}

func newProgram(uri, scheme, path string, o Options) (Source, error) {
	if o.Token != "" {
		return nil, invalid("the source of %s:// is a program, which takes no token; give it credentials by its environment", scheme)
	}
	return &program{Options: o, path: path, scheme: scheme, uri: uri}, nil
}

// Resolve takes only the revision and the files from the program. So no program can
// present its files as a model of another address.
func (s *program) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	q, err := s.ask(ctx, nil, fetchapi.AskResolve, s.uri)
	if err != nil {
		return nil, err
	}
	if err := q.wait(); err != nil {
		return nil, err
	}
	m := q.heard.manifest
	switch {
	case m == nil:
		return nil, s.wrong("was asked to resolve the model, but ended without a manifest")
	case m.Revision == "":
		return nil, s.wrong("wrote a manifest without a revision; a later change of the model could not be noticed")
	}
	s.revision, s.files = m.Revision, m.Files
	return &fetchapi.Manifest{URI: s.uri, Revision: m.Revision, Files: m.Files}, nil
}

// Resumes reports that a fetch may go on: the program names the revision.
func (s *program) Resumes() bool { return true }

// Open waits until the program has written from which byte on it sends the content. So the
// content of a program that ignores the offset is not appended at the wrong place.
func (s *program) Open(ctx context.Context, n int, offset int64) (*Stream, error) {
	in, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	q, err := s.ask(ctx, theirs, fetchapi.AskOpen, s.uri, s.revision, s.files[n].Path, strconv.FormatInt(offset, 10))
	_ = theirs.Close() // the program has it
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	w := &written{question: q, ctx: ctx, in: in}
	select {
	case <-q.heard.opened:
		q.patience.set(false) // from here on while we read
	case <-q.done:
	}
	said, ok := q.heard.from()
	if err = nil; !ok {
		if err = q.wait(); err == nil {
			err = s.wrong("was asked to open a file, but ended before it wrote the line opened")
		}
	} else if said != 0 && said != offset {
		err = s.wrong("was asked to open a file at byte %d, but opens it at %d; it must begin there or at 0", offset, said)
	}
	if err != nil {
		_ = w.Close() // err says more
		return nil, err
	}
	return &Stream{ReadCloser: w, Offset: said, Size: -1}, nil
}

// written is what a program writes to descriptor 3.
type written struct {
	*question
	ctx  context.Context //nolint:containedctx // of whoever reads
	in   *os.File
	over error // as the last Read said
}

func (w *written) Read(b []byte) (n int, err error) {
	if w.over != nil {
		return 0, w.over
	}
	defer context.AfterFunc(w.ctx, w.cut)()
	late := time.AfterFunc(w.source.Stall, w.cut) // now we wait for the program, and the program does not wait for us
	n, err = w.in.Read(b)
	if !late.Stop() && errors.Is(err, os.ErrDeadlineExceeded) {
		w.cancel(errMute)
	}
	if err != nil {
		w.over = w.end(err)
		err = w.over
	}
	return n, err
}

// cut ends a Read, even while another process has the other end open.
func (w *written) cut() { _ = w.in.SetReadDeadline(time.Unix(1, 0)) }

// end returns why there is no more to read.
func (w *written) end(err error) error {
	w.patience.set(true) // it may take a while to end
	switch told := w.wait(); {
	case told != nil:
		return told
	case errors.Is(err, io.EOF) || w.ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case w.ctx.Err() != nil:
		return context.Cause(w.ctx)
	}
	return w.source.mute()
}

// Close ends the program, which is no longer needed.
func (w *written) Close() error {
	w.cancel(errEnough)
	_ = w.wait() // how it ended does not matter
	return w.in.Close()
}

// question is one question to a program.
type question struct {
	source   *program
	cmd      *exec.Cmd
	heard    heard
	stderr   tail
	cancel   context.CancelCauseFunc // ends the program
	patience patience

	done chan struct{} // closed once the program has ended
	err  error         // what was wrong; valid after done is closed
}

// patience bounds how long a program may write nothing while we wait for it.
type patience struct {
	stall time.Duration
	mu    sync.Mutex
	timer *time.Timer
	waits bool
}

func (p *patience) set(waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits = waits; waits {
		p.timer.Reset(p.stall)
	} else {
		p.timer.Stop()
	}
}

// alive records that the program has written something.
func (p *patience) alive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits {
		p.timer.Reset(p.stall)
	}
}

var (
	errMute   = errors.New("the program is silent")
	errEnough = errors.New("the program is no longer needed")
)

// lingering is how long the children of a program may hold its outputs open after the
// program has ended.
const lingering = time.Second

// ask runs the program; content, if any, is its descriptor 3.
func (s *program) ask(ctx context.Context, content *os.File, args ...string) (*question, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	q := &question{source: s, cancel: cancel, done: make(chan struct{})}
	q.patience = patience{stall: s.Stall, waits: true, timer: time.AfterFunc(s.Stall, func() { cancel(errMute) })}
	q.heard = heard{note: s.Note, alive: q.patience.alive, stop: func() { cancel(errEnough) }, opened: make(chan struct{})}
	q.cmd = exec.CommandContext(ctx, s.path, args...)
	q.cmd.Env = fetchapi.WithoutCredentials(os.Environ())
	q.cmd.Stdout, q.cmd.Stderr = &q.heard, &q.stderr
	q.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	q.cmd.Cancel = func() error { return syscall.Kill(-q.cmd.Process.Pid, syscall.SIGKILL) }
	q.cmd.WaitDelay = lingering
	if content != nil {
		q.cmd.ExtraFiles = []*os.File{content}
	}
	_, err := q.cmd.StdinPipe() // it ends when we do
	if err == nil {
		err = q.cmd.Start()
	}
	if err != nil {
		q.patience.set(false)
		cancel(err)
		return nil, invalid("cannot run the source of %s://: %v; check --model-source", s.scheme, err)
	}
	go func() {
		defer close(q.done)
		err := q.cmd.Wait()
		cause := context.Cause(ctx)
		cancel(nil)
		q.patience.set(false)
		q.err = q.judge(err, cause)
	}()
	return q, nil
}

// wait waits for the end of the program, and returns what was wrong.
func (q *question) wait() error {
	<-q.done
	q.patience.set(false)
	return q.err
}

func (q *question) judge(err, cause error) error {
	switch {
	case q.heard.wrong != nil:
		return q.source.wrong("%v", q.heard.wrong)
	case q.heard.refusal != nil:
		return q.source.refused(q.heard.refusal)
	case errors.Is(cause, errMute):
		return q.source.mute()
	case cause != nil:
		return cause
	case err != nil:
		return q.source.unavailable("failed: %v%s", err, q.stderr.said())
	}
	return nil
}

func (s *program) mute() error {
	return s.unavailable("has written nothing for %s", s.Stall)
}

func (s *program) wrong(format string, args ...any) error {
	return invalid("the source of %s://, %s, "+format, append([]any{s.scheme, s.path}, args...)...)
}

func (s *program) unavailable(format string, args ...any) error {
	return &TemporaryError{Cause: reasonf(fetchapi.ReasonUnavailable, "the source of %s://, %s, "+format, append([]any{s.scheme, s.path}, args...)...)}
}

// refused returns the error for an error line of the program.
func (s *program) refused(e *fetchapi.Error) error {
	told := reasonf(e.Reason, "the source of %s:// reports: %s", s.scheme, e.Detail)
	switch e.Reason {
	case fetchapi.ReasonChanged:
		return ErrChanged
	case fetchapi.ReasonUnavailable:
		return &TemporaryError{Cause: told}
	case fetchapi.ReasonInvalid, fetchapi.ReasonNotFound, fetchapi.ReasonAccessDenied, fetchapi.ReasonInternal:
		return told
	}
	return s.wrong("reports an error with the unknown reason %q: %s", e.Reason, e.Detail)
}
