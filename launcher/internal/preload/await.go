package preload

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is the wait for a preloader that loads. A preloader imports once what
// a start by exec imports three times, so waiting for one is quicker than not
// waiting, even for a single instance (spec/decisions/0041).

// margin is how much longer than twice its longest time a load may take before
// nobody waits for it any more.
const margin = 5 * time.Second

// Awaits says what a command with this environment has to wait for until it can
// be forked: a preloader that loads, or that is begun now. Empty: it can be forked
// at once, or is not to wait.
func (p *Pool) Awaits(env []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.pick(parse(env))
	reason, _ := awaited(err)
	return reason
}

// Await waits until a command with this environment can be forked. told hears
// what is waited for, whenever that changes. The error is a *NotForkedError when
// no preloader is to be waited for, or when one that loads takes longer than
// Options.FirstLoad or clearly longer than any did before.
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

// awaited tells from an error of pick which preloader is to be waited for, in
// words, and for how much longer; empty when none is.
func awaited(err error) (reason string, left time.Duration) {
	not, ok := errors.AsType[*NotForkedError](err)
	if !ok || not.wait == nil {
		return "", 0
	}
	return not.wait.reason, time.Until(not.wait.until)
}

// wait is what a start may wait for.
type wait struct {
	reason string
	until  time.Time
}

// waitFor says how long a preloader that is not ready may be waited for; nil: not
// at all, because it has failed or takes longer than it should. The lock is held.
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

// patience is how long a load may take before it is not waited for any more. The
// lock is held.
func (p *Pool) patience() time.Duration {
	if p.times.Longest == 0 {
		return min(p.opts.FirstLoad, p.opts.LoadTime)
	}
	return min(2*p.times.Longest+margin, p.opts.LoadTime)
}

// tell wakes whoever awaits a preloader. The lock is held.
func (p *Pool) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}
