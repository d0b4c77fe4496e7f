// Package preload starts engines by forking: a preloader is a process that has
// imported all that an engine imports, and waits. Forked from it, an engine is
// up in a tenth of the time. The launcher keeps one preloader for each set of
// load-time variables that instances ask for, and never depends on any: what
// cannot be forked faithfully and at once is left to the caller to exec.
package preload

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

//go:embed preloader.py
var program []byte

// Recipe is what a preloader has to load.
type Recipe = engine.Recipe

// Options of a Pool. Everything is required unless it says otherwise.
type Options struct {
	Command   string   // path of the engine's command, which is a Python script
	Arguments []string // given to it before an instance's own; only a command without any can be forked
	Python    string   // its interpreter; empty: as its first line says
	Recipe    Recipe   // what to load
	Environ   []string // environment of a common instance
	Dir       string   // folder for the program and the logs of preloaders; made if need be
	Host      *process.Host

	MemoryLimit uint64        // what all preloaders together may hold, in bytes; 0: no limit
	IdleTime    time.Duration // one that forked nothing for so long is ended; 0: never
	LoadTime    time.Duration // what the imports may take
	AnswerTime  time.Duration // what a fork may take
	Logger      *slog.Logger
}

// NotForkedError says why an engine was not forked. Nothing is left of the
// attempt.
type NotForkedError struct{ Reason string }

func (e *NotForkedError) Error() string { return e.Reason }

func notForked(format string, args ...any) error {
	return &NotForkedError{Reason: fmt.Sprintf(format, args...)}
}

// Pool keeps the preloaders of one engine's command.
type Pool struct {
	opts    Options
	python  []string // with flags
	program string   // path of preloader.py
	umask   int
	cannot  string // why there will never be one
	common  variables
	ctx     context.Context //nolint:containedctx // the pool's own life, ended by Close
	end     context.CancelFunc
	wait    sync.WaitGroup

	mu    sync.Mutex
	all   []*preloader // the first is that of the common environment
	count int          // names given out
}

// New makes the pool. It always gives one: a pool that can fork nothing says why.
func New(opts Options) *Pool {
	p := &Pool{opts: opts, common: parse(opts.Environ)}
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
	p.ensure(nil, p.common)
	p.wait.Go(p.keepHouse)
}

func (p *Pool) prepare() (err error) {
	if len(p.opts.Arguments) > 0 {
		return fmt.Errorf("the engine's command has arguments of its own: %q", p.opts.Arguments)
	}
	if p.opts.Python != "" {
		p.python, err = find([]string{p.opts.Python})
	} else {
		p.python, err = Interpreter(p.opts.Command)
	}
	if err != nil {
		return err
	}
	if p.umask, err = ownUmask(); err != nil {
		return err
	}
	if err := os.MkdirAll(p.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the preloaders' folder: %w", err)
	}
	p.program = filepath.Join(p.opts.Dir, "preloader.py")
	if err := os.WriteFile(p.program, program, 0o600); err != nil {
		return fmt.Errorf("cannot write the preloader: %w", err)
	}
	return nil
}

// Close ends every preloader. What they forked lives on.
func (p *Pool) Close() {
	p.end()
	p.wait.Wait()
}

// Check says, by a *NotForkedError, why an instance with this environment would
// not be forked now; nil when it would.
func (p *Pool) Check(env []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.pick(parse(env))
	return err
}

// Never says why this pool will never fork anything; empty when it may.
func (p *Pool) Never() string { return p.cannot }

// Fork starts a command by forking. The error is a *NotForkedError whenever
// nothing was begun that is not undone, and always comes within the time that
// an answer may take.
func (p *Pool) Fork(c process.Command) (*process.Process, error) {
	p.mu.Lock()
	l, err := p.pick(parse(c.Env))
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(p.opts.AnswerTime)
	defer patience.Stop()
	select {
	case <-l.talk:
	case <-patience.C:
		return nil, notForked("the preloader is busy")
	}
	defer l.speak()
	p.mu.Lock()
	state, why, control := l.state, l.why, l.conn
	l.lastUsed = time.Now()
	p.mu.Unlock()
	if state != Ready {
		return nil, notForked("the preloader is %s: %s", state, why)
	}
	tree, broken, err := p.fork(control, c)
	if broken {
		p.send(l, fmt.Sprintf("it did not fork: %v", err))
	}
	if err != nil {
		return nil, notForked("the preloader did not fork: %v", err)
	}
	p.mu.Lock()
	l.forks++
	p.mu.Unlock()
	return tree, nil
}

// speak lets the next one speak to the preloader.
func (l *preloader) speak() {
	select {
	case l.talk <- struct{}{}:
	default: // the process was replaced meanwhile, and the new one may be spoken to
	}
}

// send ends the process of a preloader, with a reason.
func (p *Pool) send(l *preloader, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.state == Ready {
		l.state, l.why = Waiting, reason
	}
	select {
	case l.poke <- reason:
	default: // it is being ended already
	}
}

// pick finds a preloader that is ready and fits an environment. Where there is
// none, one that fits is begun. The lock is held.
func (p *Pool) pick(env variables) (*preloader, error) {
	if p.cannot != "" {
		return nil, notForked("%s", p.cannot)
	}
	if p.ctx.Err() != nil {
		return nil, notForked("the launcher is closing")
	}
	first := p.first()
	if first == nil {
		first = p.ensure(nil, p.common)
	}
	if first.state != Ready {
		return nil, notForked("%s", first.describe())
	}
	differing := first.counts.differing(p.common, env)
	l := first
	if len(differing) > 0 {
		l = p.fitting(env)
	}
	if l == nil {
		if err := p.room(first.bytes); err != nil {
			return nil, err
		}
		l = p.ensure(differing, p.common.with(env, differing))
	}
	if l.state != Ready {
		reason := l.describe()
		if len(differing) > 0 {
			reason += "; it is one of its own for " + strings.Join(differing, ", ")
		}
		return nil, notForked("%s", reason)
	}
	if stamp(l.hello.Watch) != l.stamp {
		p.changed(l)
		return nil, notForked("the installation of the engine has changed, and is being loaded again")
	}
	return l, nil
}

func (p *Pool) first() *preloader {
	for _, l := range p.all {
		if len(l.diff) == 0 {
			return l
		}
	}
	return nil
}

// fitting is the preloader for an environment, ready or not.
func (p *Pool) fitting(env variables) *preloader {
	for _, l := range p.all {
		counts := l.counts
		if l.state != Ready {
			counts = p.first().counts
		}
		if len(counts.differing(l.env, env)) == 0 {
			return l
		}
	}
	return nil
}

// room makes room in memory for one more preloader, by ending the one that was
// used least recently among those for uncommon environments.
func (p *Pool) room(bytes uint64) error {
	if p.opts.MemoryLimit == 0 {
		return nil
	}
	for {
		held := bytes
		var oldest *preloader
		for _, l := range p.all {
			held += max(l.bytes, bytes)
			if len(l.diff) > 0 && l.state == Ready && (oldest == nil || l.lastUsed.Before(oldest.lastUsed)) {
				oldest = l
			}
		}
		if held <= p.opts.MemoryLimit {
			return nil
		}
		if oldest == nil {
			return notForked("one more preloader would hold %d bytes with the others, and their limit is %d", held, p.opts.MemoryLimit)
		}
		p.drop(oldest)
	}
}

// drop ends a preloader for good. The lock is held.
func (p *Pool) drop(l *preloader) {
	p.all = slices.DeleteFunc(p.all, func(o *preloader) bool { return o == l })
	l.state, l.why = Waiting, "it is no longer kept"
	l.cancel()
}

// changed has a preloader load again. The lock is held.
func (p *Pool) changed(l *preloader) {
	l.state, l.why, l.attempt = Waiting, "the installation of the engine has changed", 0
	select {
	case l.poke <- l.why:
	default:
	}
}

// ensure begins a preloader for an environment. The lock is held.
func (p *Pool) ensure(diff []string, env variables) *preloader {
	p.count++
	now := time.Now()
	l := &preloader{
		name: fmt.Sprintf("%s%d", namePrefix, p.count), env: env, diff: diff, state: Loading, began: now, lastUsed: now,
		talk: make(chan struct{}, 1), poke: make(chan string, 1),
	}
	ctx, cancel := context.WithCancel(p.ctx)
	l.cancel = cancel
	p.all = append(p.all, l)
	p.wait.Go(func() { p.live(ctx, l) })
	return l
}

// namePrefix begins the names of preloaders' trees; no instance is called so.
const namePrefix = process.HelperPrefix + "preloader-"

// describe says why one that is not ready is not. The lock is held.
func (l *preloader) describe() string {
	if l.state == Loading {
		return fmt.Sprintf("the preloader is loading, for %s so far", time.Since(l.began).Round(time.Second))
	}
	return fmt.Sprintf("the preloader is %s: %s", l.state, l.why)
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
		if l.tree != nil {
			view.PID = l.tree.ID().PID
		}
		list.Preloaders = append(list.Preloaders, view)
	}
	return list
}

// stamp tells whether files and folders are as they were.
func stamp(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", path, errors.Unwrap(err))
			continue
		}
		fmt.Fprintf(&b, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}
