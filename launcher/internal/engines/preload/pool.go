// Package preload starts engines by forking: a preloader is a process that has
// imported all that an engine imports, and waits. Forked from it, an engine is up
// in a tenth of the time. The launcher keeps one preloader for each set of
// load-time variables that instances ask for, and never depends on any: an engine
// that cannot be forked faithfully, and soon, is left to the caller to exec.
package preload

import (
	"archive/zip"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

//go:embed all:preloader
var sources embed.FS

// Recipe is what a preloader has to load.
type Recipe = engine.Recipe

// Options of a Pool. Everything is required unless it says otherwise.
type Options struct {
	Command   string   // path of the engine's command, which is a Python script
	Arguments []string // given to the command before an instance's own; only a command without any can be forked
	Python    string   // the interpreter; empty: as the first line of Command says
	Recipe    Recipe   // what to load
	Environ   []string // environment of a common instance
	Dir       string   // folder for the program and the logs of preloaders, used for nothing else; made anew
	Host      *process.Host

	MemoryLimit uint64        // memory that all preloaders together may hold, in bytes; 0: no limit
	IdleTime    time.Duration // a preloader that was not used for this long is ended; 0: never
	LoadTime    time.Duration // bounds a load
	FirstLoad   time.Duration // how long a start waits for a load while no load has told how long it takes
	AnswerTime  time.Duration // bounds a fork
	Logger      *slog.Logger
}

// NotForkedError says why an engine was not forked. No process is left of the
// attempt.
type NotForkedError struct {
	Reason string
	wait   *wait // for the preloader that will fork it soon; nil: none will
}

func (e *NotForkedError) Error() string { return e.Reason }

func notForked(format string, args ...any) error {
	return &NotForkedError{Reason: fmt.Sprintf(format, args...)}
}

// Pool keeps the preloaders of one engine's command.
type Pool struct {
	opts    Options
	python  []string // with flags, as it was when the pool was made
	program string   // path of the preloader
	umask   int
	cannot  string // why the pool will never fork; empty: it may
	common  variables
	ctx     context.Context //nolint:containedctx // the pool's own life, ended by Close
	end     context.CancelFunc
	wait    sync.WaitGroup

	mu      sync.Mutex
	all     []*preloader
	count   int           // how many names were given out
	times   times         // of the loads so far
	changed chan struct{} // closed and replaced when a preloader changes its state
}

// New makes the pool. It never fails: a pool that can fork nothing says why, by
// Never.
func New(opts Options) *Pool {
	p := &Pool{opts: opts, common: parse(opts.Environ), changed: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	if err := p.prepare(); err != nil {
		p.cannot = err.Error()
		opts.Logger.Info("engines are started by exec alone", "reason", p.cannot)
	}
	return p
}

// Begin has the first preloader load, in the background.
func (p *Pool) Begin() {
	if p.cannot != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.with(p.common) == nil {
		p.ensure(nil, p.common)
	}
	p.wait.Go(p.keepHouse)
}

func (p *Pool) prepare() (err error) {
	if p.python, err = p.interpreter(); err != nil {
		return err
	}
	if p.umask, err = ownUmask(); err != nil {
		return err
	}
	p.times = readTimes(p.opts.Dir)
	if err := errors.Join(os.RemoveAll(p.opts.Dir), os.MkdirAll(p.opts.Dir, 0o700)); err != nil {
		return fmt.Errorf("cannot make the preloaders' folder: %w", err)
	}
	if p.times.Last > 0 {
		if err := p.times.write(filepath.Join(p.opts.Dir, timesName), "pool"); err != nil {
			return fmt.Errorf("cannot write down how long preloaders took to load: %w", err)
		}
	}
	p.program = filepath.Join(p.opts.Dir, programName)
	if err := writeProgram(p.program); err != nil {
		return fmt.Errorf("cannot write the preloader: %w", err)
	}
	return nil
}

// programName is of a file that the interpreter runs as it is (zipapp in
// Python's library).
const programName = "preloader.pyz"

func writeProgram(path string) error {
	files, err := fs.Sub(sources, "preloader")
	if err != nil {
		return err
	}
	var program bytes.Buffer
	archive := zip.NewWriter(&program)
	if err := errors.Join(archive.AddFS(files), archive.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, program.Bytes(), 0o600)
}

// Close ends every preloader. The engines that they forked live on.
func (p *Pool) Close() {
	p.mu.Lock() // no preloader is begun from now on
	p.end()
	p.tell()
	p.mu.Unlock()
	p.wait.Wait()
}

// Check says, by a *NotForkedError, why an instance with this environment would not
// be forked now; nil when it would. Where no preloader fits, one is begun.
func (p *Pool) Check(env []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.pick(parse(env))
	return err
}

// Look says what Check says, and begins and ends no preloader.
func (p *Pool) Look(env []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.look(parse(env))
}

// Never says why this pool will never fork anything; empty when it may.
func (p *Pool) Never() string { return p.cannot }

// Fork starts a command by forking. After a *NotForkedError no process is left, and
// the command may be started by exec. Fork waits for the preloader's turn, and then
// for its answer, for at most Options.AnswerTime each.
func (p *Pool) Fork(c process.Command) (*process.Process, error) {
	p.mu.Lock()
	l, err := p.pick(parse(c.Env))
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	r := l.run
	p.mu.Unlock()
	patience := time.NewTimer(p.opts.AnswerTime)
	defer patience.Stop()
	select {
	case <-r.talk:
	case <-patience.C:
		return nil, notForked("the preloader is busy")
	}
	defer func() { r.talk <- struct{}{} }()
	if err := p.use(l, r); err != nil {
		return nil, err
	}
	tree, broken, err := p.fork(r, c)
	if broken {
		p.giveUp(l, r, fmt.Sprintf("it did not fork: %v", err))
	}
	if err != nil {
		return nil, notForked("the preloader did not fork: %v", err)
	}
	p.mu.Lock()
	l.forks++
	l.failed = false
	p.mu.Unlock()
	return tree, nil
}

// use notes that a preloader is used, if its process is still r.
func (p *Pool) use(l *preloader, r *run) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.state != Ready:
		return notForked("%s", l.describe())
	case l.run != r:
		return notForked("the preloader was replaced meanwhile")
	}
	l.lastUsed = time.Now()
	return nil
}

// giveUp has a preloader's process ended for a reason.
func (p *Pool) giveUp(l *preloader, r *run, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.run == r && l.state == Ready {
		l.state, l.why, l.failed = Waiting, reason, true
		p.tell()
	}
	r.end(reason)
}

// List shows the preloaders.
func (p *Pool) List() launcherapi.PreloaderList {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := launcherapi.PreloaderList{Preloaders: []launcherapi.Preloader{}, Reason: p.cannot}
	for _, l := range p.all {
		view := launcherapi.Preloader{
			Name: strings.TrimPrefix(l.name, process.HelperPrefix), State: string(l.state), Reason: l.why, Variables: l.diff,
			Interpreter: strings.Join(p.python, " "), EngineVersion: l.hello.Version, Modules: l.hello.Modules,
			LoadSeconds: l.hello.Seconds, Forks: l.forks, MemoryBytes: l.bytes, Since: l.began.UTC(), LastUsedAt: l.lastUsed.UTC(),
		}
		if l.run != nil {
			view.PID, view.Interpreter = l.run.tree.ID().PID, strings.Join(l.run.python, " ")
		}
		list.Preloaders = append(list.Preloaders, view)
	}
	return list
}
