package preload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// This file chooses, adds and drops preloaders. Callers hold the pool's lock, but for pick,
// look and neverForks: these read the engine's installation, which a disk may delay, and
// take the lock themselves.

// pick returns a preloader that is ready and fits an environment, and its process. If there
// is none, pick starts one and returns an error.
func (p *Pool) pick(env variables) (*preloader, *run, error) {
	if err := p.neverForks(env); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	l, err := p.findOrBegin(env)
	if err != nil {
		p.mu.Unlock()
		return nil, nil, err
	}
	r, from := l.run, l.loadedFrom
	p.mu.Unlock()
	if !p.isStale(from) {
		return l, r, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reload(l, r)
	return nil, nil, p.notReady(l, "the installation of the engine has changed, and the preloader loads it again")
}

// neverForks returns an error when no preloader can ever fork for an environment.
func (p *Pool) neverForks(env variables) error {
	if p.neverReason != "" {
		return notForked("%s", p.neverReason)
	}
	if env["PATH"] != p.common["PATH"] && p.opts.Python == "" && byPath(p.opts.Command) {
		return notForked("the instance's PATH differs from the launcher's, and the engine's command finds its Python by PATH")
	}
	return nil
}

// look returns the error that pick would return, without starting or ending a
// preloader.
func (p *Pool) look(env variables) error {
	if err := p.neverForks(env); err != nil {
		return err
	}
	from, err := p.readyInstallation(env)
	if err == nil && p.isStale(from) {
		err = notForked("the installation of the engine has changed, and the preloader has not loaded it again yet")
	}
	return err
}

// readyInstallation returns what a preloader has loaded that is ready for an environment.
// It takes the lock.
func (p *Pool) readyInstallation(env variables) (installation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return installation{}, errClosing
	}
	if l := p.readyFor(env); l != nil {
		return l.loadedFrom, nil
	}
	if common := p.withEnviron(p.common); common != nil && common.state != Ready {
		return installation{}, notForked("%s", common.describe())
	}
	return installation{}, notForked("no preloader is ready for the instance's environment")
}

var errClosing = notForked("the launcher is closing")

// readyFor returns a preloader that is ready for an environment; nil: there is none.
func (p *Pool) readyFor(env variables) *preloader {
	for _, l := range p.all {
		if l.state == Ready && len(l.loadTimeNames.differing(l.env, env)) == 0 {
			return l
		}
	}
	return nil
}

// findOrBegin returns a preloader that is ready for an environment.
//
// If there is none, the common preloader knows which variables its imports read.
// findOrBegin looks for the preloader with the environment's values of these
// variables, and adds it if it is missing. The imports of that preloader may read
// further variables, so findOrBegin repeats this.
func (p *Pool) findOrBegin(env variables) (*preloader, error) {
	if p.ctx.Err() != nil {
		return nil, errClosing
	}
	if l := p.readyFor(env); l != nil {
		return l, nil
	}
	l := p.withEnviron(p.common)
	if l == nil {
		l = p.add(nil, p.common)
	}
	for l.state == Ready {
		differing := l.loadTimeNames.differing(l.env, env)
		want := l.env.with(env, differing)
		next := p.withEnviron(want)
		if next == nil {
			if err := p.makeRoom(l.bytes); err != nil {
				return nil, err
			}
			next = p.add(merge(l.diff, differing), want)
		}
		l = next
	}
	reason := l.describe()
	if len(l.diff) > 0 {
		reason += "; it is " + l.title()
	}
	return nil, p.notReady(l, reason)
}

// notReady makes the error for a preloader that is not ready.
func (p *Pool) notReady(l *preloader, reason string) error {
	return &NotForkedError{Reason: reason, wait: p.waitFor(l)}
}

// withEnviron returns the preloader that has exactly this environment; nil: there is
// none.
func (p *Pool) withEnviron(env variables) *preloader {
	for _, l := range p.all {
		if maps.Equal(l.env, env) {
			return l
		}
	}
	return nil
}

func merge(a, b []string) []string {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

// makeRoom makes room in memory for one more preloader. It drops the least recently
// used preloaders for uncommon environments, except those that load or are untried.
func (p *Pool) makeRoom(bytes uint64) error {
	if p.opts.MemoryLimit == 0 {
		return nil
	}
	for {
		held := bytes
		var oldest *preloader
		for _, l := range p.all {
			held += max(l.bytes, bytes)
			if len(l.diff) > 0 && l.state != Loading && !l.isUntried() && (oldest == nil || l.lastUsed.Before(oldest.lastUsed)) {
				oldest = l
			}
		}
		if held <= p.opts.MemoryLimit {
			return nil
		}
		if oldest == nil {
			return notForked("another preloader does not fit: with it, all preloaders would hold %s, and their limit is %s; raise preload_memory_limit",
				launcher.BytesText(held), launcher.BytesText(p.opts.MemoryLimit))
		}
		p.drop(oldest)
	}
}

// isUntried reports whether a preloader is ready, has not forked yet, and has been
// ready for less than trialTime.
func (l *preloader) isUntried() bool {
	return l.state == Ready && l.forks == 0 && time.Since(l.lastUsed) < trialTime
}

// trialTime is how long an unused preloader is kept. Without it, environments that
// take turns would drop each other's preloaders before they are used.
const trialTime = 5 * time.Minute

// drop removes a preloader from the pool and ends it.
func (p *Pool) drop(l *preloader) {
	p.all = slices.DeleteFunc(p.all, func(o *preloader) bool { return o == l })
	l.state, l.reason = Waiting, "the launcher has dropped this preloader"
	l.cancel()
	p.wakeWaiters()
}

// reload ends the process r of a preloader that is ready, so that a new process loads
// the installation again. It does nothing if that has happened meanwhile.
func (p *Pool) reload(l *preloader, r *run) {
	if l.state != Ready || l.run != r {
		return
	}
	l.state, l.reason, l.attempt = Waiting, "the installation of the engine has changed", 0
	l.run.end(l.reason)
	p.wakeWaiters()
}

// add adds a preloader for an environment to the pool, and starts it. diff names the
// variables that differ from the common environment.
func (p *Pool) add(diff []string, env variables) *preloader {
	p.count++
	now := time.Now()
	l := &preloader{
		name: fmt.Sprintf("%s%d", namePrefix, p.count), env: env, diff: diff, difference: p.differenceText(diff, env),
		state: Loading, began: now, lastUsed: now,
	}
	ctx, cancel := context.WithCancel(p.ctx)
	l.cancel = cancel
	p.all = append(p.all, l)
	p.wait.Go(func() { p.keepRunning(ctx, l) })
	return l
}

// namePrefix begins the names of preloaders' process trees. No instance has such a
// name.
const namePrefix = process.HelperPrefix + "preloader-"

// title returns the words for a preloader in the reason of an instance that waits.
func (l *preloader) title() string {
	if len(l.diff) > 0 {
		return "a separate preloader for " + l.difference
	}
	return "the preloader"
}

// describe returns why a preloader is not ready.
func (l *preloader) describe() string {
	if l.state == Loading {
		text := fmt.Sprintf("the preloader is loading, for %s so far", time.Since(l.began).Round(time.Second))
		if l.reason != "" {
			text += "; before: " + l.reason
		}
		return text
	}
	return fmt.Sprintf("the preloader is %s: %s", l.state, l.reason)
}
