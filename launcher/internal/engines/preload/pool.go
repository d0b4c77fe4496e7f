// Package preload starts engines by forking. A preloader is a process that has
// imported all that an engine imports, and waits. An engine that is forked from it
// starts in a tenth of the time.
//
// The pool keeps one preloader for each set of load-time variables that instances
// have. The launcher never depends on a preloader: when an engine cannot be forked
// faithfully and soon, the caller starts it by exec.
package preload

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

//go:embed all:preloader
var sources embed.FS

// Recipe says what a preloader loads.
type Recipe = engine.Recipe

// Options of a Pool. All are required unless the comment says otherwise.
type Options struct {
	Command   string       // path of the engine's command, which is a Python script
	Arguments []string     // the command's arguments before an instance's own; with any, no engine is forked
	Python    string       // the interpreter; empty: the one in the first line of Command
	Recipe    Recipe       // what to load
	Environ   []string     // environment of a common instance
	GPUs      []gpu.Device // GPUs of the machine, in the order of their indices; empty: instances do not differ by them
	Dir       string       // folder for the preloaders' program and logs; New deletes what earlier pools left in it
	Host      *process.Host
	Disk      Disk // of the state folder; nil: it never stalls

	MemoryLimit uint64        // how many bytes of memory all preloaders together may hold; 0: no limit
	IdleTime    time.Duration // a preloader that was not used for this long is ended; 0: never
	LoadTime    time.Duration // bounds a load
	FirstLoad   time.Duration // how long a start waits for a load while no load has finished yet
	AnswerTime  time.Duration // bounds a fork
	LookEvery   time.Duration // how often the pool looks for changed installations; 0: every 15 s
	Logger      *slog.Logger
}

// NotForkedError says why an engine was not forked. The attempt has left no process.
type NotForkedError struct {
	Reason string
	wait   *wait // which preloader will soon fork the engine; nil: none will
}

func (e *NotForkedError) Error() string { return e.Reason }

func notForked(format string, args ...any) error {
	return &NotForkedError{Reason: fmt.Sprintf(format, args...)}
}

// Pool keeps the preloaders of one engine's command.
type Pool struct {
	opts        Options
	python      []string // the interpreter with its flags, when the pool was made
	program     string   // path of the preloader
	umask       int
	neverReason string          // why the pool will never fork; empty: it may
	own         variables       // Options.Environ
	common      variables       // of the common preloader
	ctx         context.Context //nolint:containedctx // the pool's own life, ended by Close
	end         context.CancelFunc
	wait        sync.WaitGroup

	mu      sync.Mutex
	all     []*preloader
	count   int           // how many names were given out
	times   times         // of the loads so far
	changed chan struct{} // closed and replaced when a preloader changes its state
}

// New makes the pool. It never fails: if the pool can fork nothing, Never returns why.
func New(opts Options) *Pool {
	opts.LookEvery = cmp.Or(opts.LookEvery, housekeepingInterval)
	p := &Pool{opts: opts, own: parse(opts.Environ), changed: make(chan struct{})}
	p.common = p.parse(commonEnviron(opts))
	p.ctx, p.end = context.WithCancel(context.Background())
	if err := p.prepare(); err != nil {
		p.neverReason = err.Error()
		opts.Logger.Info("engines are started by exec alone", "reason", p.neverReason)
	} else if kinds := Kinds(opts.GPUs); len(kinds) > 1 {
		opts.Logger.Info("the machine has several kinds of GPU; each kind gets a preloader of its own", "kinds", kinds)
	}
	return p
}

// Begin starts the common preloader in the background.
func (p *Pool) Begin() {
	if p.neverReason != "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.withEnviron(p.common) == nil {
		p.add(nil, p.common)
	}
	p.wait.Go(p.doHousekeeping)
}

func (p *Pool) prepare() (err error) {
	if p.python, err = p.interpreter(); err != nil {
		return err
	}
	if p.umask, err = ownUmask(); err != nil {
		return err
	}
	p.times = readTimes(p.opts.Dir)
	if err := p.clear(); err != nil {
		return fmt.Errorf("cannot make the preloaders' folder: %w", err)
	}
	if p.times.Last > 0 {
		if err := p.times.write(filepath.Join(p.opts.Dir, timesName), "pool"); err != nil {
			return fmt.Errorf("cannot record how long preloaders took to load: %w", err)
		}
	}
	p.program = filepath.Join(p.opts.Dir, programName)
	return p.provideProgram()
}

// leftovers are the names of files that pools leave: the program, also of an earlier
// release, the times and their drafts, the logs of preloaders, and the file that touches the
// disk.
var leftovers = regexp.MustCompile(`^(preloader\.pyz?|times\.json(\..+)?|` + namePrefix + `[0-9]+\.log|probe)$`)

// clear makes the folder, or removes the files that an earlier pool left in it.
func (p *Pool) clear() error {
	if err := os.MkdirAll(p.opts.Dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.opts.Dir)
	errs := []error{err}
	for _, e := range entries {
		if e.Type().IsRegular() && leftovers.MatchString(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(p.opts.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// programName is the name of the preloader's program: a zip file that the interpreter
// runs as it is (zipapp in Python's library).
const programName = "preloader.pyz"

// provideProgram writes the preloader's program where it is missing: at first, and when a
// cleaner of temporary files has removed it.
func (p *Pool) provideProgram() error {
	if _, err := os.Stat(p.program); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.MkdirAll(p.opts.Dir, 0o700), writeProgram(p.program)); err != nil {
		return fmt.Errorf("cannot write the preloader: %w", err)
	}
	return nil
}

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

// Close ends every preloader. The engines that they forked go on running.
func (p *Pool) Close() {
	p.mu.Lock() // so that no preloader is started after p.end
	p.end()
	p.wakeWaiters()
	p.mu.Unlock()
	p.wait.Wait()
}

// Check returns a *NotForkedError when an instance with this environment would not be
// forked now. If no preloader fits, Check starts one.
func (p *Pool) Check(env []string) error {
	_, _, err := p.pick(p.parse(env))
	return err
}

// Look returns what Check would return, without starting or ending a preloader.
func (p *Pool) Look(env []string) error { return p.look(p.parse(env)) }

// Never returns why this pool will never fork an engine; empty: it may fork some.
func (p *Pool) Never() string { return p.neverReason }

// Fork starts a command by forking. After a *NotForkedError no process is left, and
// the caller may start the command by exec. Fork waits at most Options.AnswerTime for
// its turn at the preloader, and then as long again for the preloader's answer. Without one,
// it waits for Disk.StalledAfter: a preloader that does not answer is replaced, unless the
// disk stalls.
func (p *Pool) Fork(c process.Command) (*process.Process, error) {
	l, r, err := p.pick(p.parse(c.Env))
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(p.opts.AnswerTime)
	defer patience.Stop()
	select {
	case <-r.turn:
	case <-patience.C:
		return nil, notForked("the preloader is busy with other forks")
	}
	kept := false // whether the preloader still has to answer
	defer func() {
		if !kept {
			r.turn <- struct{}{}
		}
	}()
	if err := p.markUsed(l, r); err != nil {
		return nil, err
	}
	asked := time.Now()
	tree, broken, err := p.fork(r, c)
	if broken {
		kept = p.judgeSilence(l, r, asked, err)
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

// markUsed records that a preloader is used. It fails when the preloader is not ready,
// or has another process than r by now.
func (p *Pool) markUsed(l *preloader, r *run) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.state != Ready:
		return notForked("%s", l.describe())
	case l.run != r:
		return notForked("another preloader has replaced this one")
	}
	l.lastUsed = time.Now()
	return nil
}

// abandon marks a preloader as not ready, and has its process r ended.
func (p *Pool) abandon(l *preloader, r *run, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.run == r && l.state == Ready {
		l.state, l.reason, l.failed = Waiting, reason, true
		p.wakeWaiters()
	}
	r.end(reason)
}

// List describes the preloaders.
func (p *Pool) List() launcherapi.PreloaderList {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := launcherapi.PreloaderList{Preloaders: []launcherapi.Preloader{}, Reason: p.neverReason}
	for _, l := range p.all {
		view := launcherapi.Preloader{
			Name: strings.TrimPrefix(l.name, process.HelperPrefix), State: string(l.state), Reason: l.reason, Variables: l.diff,
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
