package preload

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file waits for preloaders that load. A preloader imports once what a start
// by exec imports three times, so that waiting for one is quicker than a start by
// exec, even for a single instance (spec/decisions/0041).

// margin is how much longer than twice the longest load so far a load may take
// before starts wait for it no longer.
const margin = 5 * time.Second

// Awaits says what a command with this environment has to wait for until it can be
// forked: a preloader that loads, or that is begun now. Empty: the command can be
// forked at once, or is not to wait.
func (p *Pool) Awaits(env []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.pick(parse(env))
	reason, _ := awaited(err)
	return reason
}

// Await waits until a command with this environment can be forked. told hears what
// the command waits for, whenever that changes. The error is a *NotForkedError when
// there is no preloader to wait for, or when its load takes longer than
// Options.FirstLoad or clearly longer than any load before.
func (p *Pool) Await(ctx context.Context, env []string, told func(reason string)) error {
	want, said := parse(env), ""
	for {
		p.mu.Lock()
		_, err := p.pick(want)
		reason, left := awaited(err)
		changed := p.changed
		p.mu.Unlock()
		if reason == "" {
			return err
		}
		if reason != said {
			told(reason)
			said = reason
		}
		overdue := time.NewTimer(left)
		select {
		case <-changed:
		case <-overdue.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		overdue.Stop()
		if ctx.Err() != nil {
			return err
		}
	}
}

// awaited tells from an error of pick which preloader to wait for, in words, and
// for how much longer; empty: for none.
func awaited(err error) (reason string, left time.Duration) {
	not, ok := errors.AsType[*NotForkedError](err)
	if !ok || not.wait == nil {
		return "", 0
	}
	return not.wait.reason, time.Until(not.wait.until)
}

// wait says which preloader a start may wait for, and how long.
type wait struct {
	reason string
	until  time.Time
}

// waitFor says how long a start may wait for a preloader that is not ready; nil:
// not at all, because the preloader has failed or takes longer than it should. The
// lock is held.
func (p *Pool) waitFor(l *preloader) *wait {
	if l.failed || l.state == Ready {
		return nil
	}
	began := l.began
	if l.state == Waiting { // for the next load, which begins soon
		began = time.Now().Add(shortestBackOff)
	}
	w := &wait{until: began.Add(p.patience())}
	if time.Until(w.until) <= 0 {
		return nil
	}
	w.reason = fmt.Sprintf("waiting for %s, which began to load at %s", l.title(), l.began.UTC().Format(time.TimeOnly+"Z"))
	if l.state == Waiting {
		w.reason = fmt.Sprintf("waiting for %s, which loads again (%s)", l.title(), l.why)
	}
	if p.times.Last > 0 {
		w.reason += fmt.Sprintf("; the last load took %.1f s", p.times.Last.Seconds())
	}
	return w
}

// patience is how long a load may take before starts wait for it no longer. The
// lock is held.
func (p *Pool) patience() time.Duration {
	if p.times.Longest == 0 {
		return min(p.opts.FirstLoad, p.opts.LoadTime)
	}
	return min(2*p.times.Longest+margin, p.opts.LoadTime)
}

// tell wakes the starts that wait for a preloader. The lock is held.
func (p *Pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}
