package preload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// This file chooses preloaders, begins them and drops them. The pool's lock is held
// throughout.

// pick finds a preloader that is ready and fits an environment. Where there is
// none, it begins one.
func (p *Pool) pick(env variables) (*preloader, error) {
	if err := p.excluded(env); err != nil {
		return nil, err
	}
	l, err := p.fitting(env)
	if err != nil {
		return nil, err
	}
	if p.outdated(l) {
		p.renew(l)
		return nil, p.notReady(l, "the installation of the engine has changed, and is being loaded again")
	}
	return l, nil
}

// excluded says why no preloader can ever fork for an environment; nil: one may.
func (p *Pool) excluded(env variables) error {
	if p.cannot != "" {
		return notForked("%s", p.cannot)
	}
	if p.ctx.Err() != nil {
		return notForked("the launcher is closing")
	}
	if env["PATH"] != p.common["PATH"] && p.opts.Python == "" && byPath(p.opts.Command) {
		return notForked("its PATH is not the launcher's, and the engine's command takes its Python from there")
	}
	return nil
}

// look gives the error that pick would give, and begins and ends no preloader.
func (p *Pool) look(env variables) error {
	if err := p.excluded(env); err != nil {
		return err
	}
	l, common := p.ready(env), p.with(p.common)
	switch {
	case l != nil && p.outdated(l):
		return notForked("the installation of the engine has changed, and is not loaded again yet")
	case l != nil:
		return nil
	case common != nil && common.state != Ready:
		return notForked("%s", common.describe())
	}
	return notForked("no preloader is ready for its environment")
}

// ready is the preloader that is ready for an environment; nil when none is.
func (p *Pool) ready(env variables) *preloader {
	for _, l := range p.all {
		if l.state == Ready && len(l.counts.differing(l.env, env)) == 0 {
			return l
		}
	}
	return nil
}

// fitting is the preloader that is ready for an environment. Where there is none,
// the common preloader tells which variables count, and the preloader with the
// environment's values of those is looked for, which may itself tell of more
// variables.
func (p *Pool) fitting(env variables) (*preloader, error) {
	if l := p.ready(env); l != nil {
		return l, nil
	}
	l := p.with(p.common)
	if l == nil {
		l = p.ensure(nil, p.common)
	}
	for l.state == Ready {
		differing := l.counts.differing(l.env, env)
		want := l.env.with(env, differing)
		next := p.with(want)
		if next == nil {
			if err := p.room(l.bytes); err != nil {
				return nil, err
			}
			next = p.ensure(merge(l.diff, differing), want)
		}
		l = next
	}
	reason := l.describe()
	if len(l.diff) > 0 {
		reason += "; it is one of its own for " + strings.Join(l.diff, ", ")
	}
	return nil, p.notReady(l, reason)
}

// notReady is the error for a preloader that is not ready.
func (p *Pool) notReady(l *preloader, reason string) error {
	return &NotForkedError{Reason: reason, wait: p.waitFor(l)}
}

// with is the preloader that has exactly that environment; nil: none has.
func (p *Pool) with(env variables) *preloader {
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

// room makes room in memory for one more preloader, by ending the least recently
// used of the preloaders for uncommon environments, except those that are loading.
func (p *Pool) room(bytes uint64) error {
	if p.opts.MemoryLimit == 0 {
		return nil
	}
	for {
		held := bytes
		var oldest *preloader
		for _, l := range p.all {
			held += max(l.bytes, bytes)
			if len(l.diff) > 0 && l.state != Loading && !l.untried() && (oldest == nil || l.lastUsed.Before(oldest.lastUsed)) {
				oldest = l
			}
		}
		if held <= p.opts.MemoryLimit {
			return nil
		}
		if oldest == nil {
			return notForked("one more preloader would hold %s with the others, and their limit is %s (preload_memory_limit)",
				launcher.BytesText(held), launcher.BytesText(p.opts.MemoryLimit))
		}
		p.drop(oldest)
	}
}

// untried says whether a preloader is ready, and has had little time to be used
// yet.
func (l *preloader) untried() bool {
	return l.state == Ready && l.forks == 0 && time.Since(l.lastUsed) < trialTime
}

// trialTime keeps environments that take turns from ending each other's preloaders
// before these are used.
const trialTime = 5 * time.Minute

// drop ends a preloader for good.
func (p *Pool) drop(l *preloader) {
	p.all = slices.DeleteFunc(p.all, func(o *preloader) bool { return o == l })
	l.state, l.why = Waiting, "it is no longer kept"
	l.cancel()
	p.tell()
}

// renew ends the process of a preloader that is ready, so that the preloader loads
// again.
func (p *Pool) renew(l *preloader) {
	l.state, l.why, l.attempt = Waiting, "the installation of the engine has changed", 0
	l.run.end(l.why)
	p.tell()
}

// ensure begins a preloader for an environment.
func (p *Pool) ensure(diff []string, env variables) *preloader {
	p.count++
	now := time.Now()
	l := &preloader{
		name: fmt.Sprintf("%s%d", namePrefix, p.count), env: env, diff: diff, state: Loading, began: now, lastUsed: now,
	}
	ctx, cancel := context.WithCancel(p.ctx)
	l.cancel = cancel
	p.all = append(p.all, l)
	p.wait.Go(func() { p.live(ctx, l) })
	return l
}

// namePrefix begins the names of preloaders' trees; no instance is called so.
const namePrefix = process.HelperPrefix + "preloader-"

// title names a preloader in the reasons of instances that wait for it.
func (l *preloader) title() string {
	if len(l.diff) > 0 {
		return "a preloader of its own for " + strings.Join(l.diff, ", ")
	}
	return "the preloader"
}

// describe says why a preloader is not ready.
func (l *preloader) describe() string {
	if l.state == Loading {
		text := fmt.Sprintf("the preloader is loading, for %s so far", time.Since(l.began).Round(time.Second))
		if l.why != "" {
			text += "; before: " + l.why
		}
		return text
	}
	return fmt.Sprintf("the preloader is %s: %s", l.state, l.why)
}
