package preload

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file waits for preloaders that load. A start by exec imports three times what
// a preloader imports once. So even for a single instance, waiting for a preloader is
// quicker than a start by exec (spec/decisions/0041).

// loadMargin is added to twice the longest load so far. The sum bounds how long
// starts wait for a load.
const loadMargin = 5 * time.Second

// Awaits returns what a command with this environment waits for until it can be forked:
// a preloader that loads. If no preloader fits, Awaits starts one. The result is empty
// when the command can be forked at once, or should not wait.
func (p *Pool) Awaits(env []string) string {
	_, _, err := p.pick(p.parse(env))
	reason, _ := waitOf(err)
	return reason
}

// Await waits until a command with this environment can be forked. It calls onReason
// with what the command waits for, first and whenever that changes. The error is a
// *NotForkedError when there is no preloader to wait for, or when its load takes too
// long. The first load may take Options.FirstLoad; a later one may not take clearly
// longer than any load before.
func (p *Pool) Await(ctx context.Context, env []string, onReason func(reason string)) error {
	want, lastReason := p.parse(env), ""
	for {
		p.mu.Lock()
		changed := p.changed // before pick, so that no change after it is missed
		p.mu.Unlock()
		_, _, err := p.pick(want)
		reason, left := waitOf(err)
		if reason == "" {
			return err
		}
		if reason != lastReason {
			onReason(reason)
			lastReason = reason
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

// waitOf reads from an error of pick why to wait, and for how much longer. The reason
// is empty when there is no preloader to wait for.
func waitOf(err error) (reason string, left time.Duration) {
	not, ok := errors.AsType[*NotForkedError](err)
	if !ok || not.wait == nil {
		return "", 0
	}
	return not.wait.reason, time.Until(not.wait.until)
}

// wait says which preloader a start may wait for, and until when.
type wait struct {
	reason string // names the preloader, and says what it does
	until  time.Time
}

// waitFor says how long a start may wait for a preloader that is not ready. It
// returns nil when a start should not wait: the preloader has failed, or takes longer
// than it should. The caller holds the lock.
func (p *Pool) waitFor(l *preloader) *wait {
	if l.failed || l.state == Ready {
		return nil
	}
	began := l.began
	if l.state == Waiting { // the next load begins soon
		began = time.Now().Add(shortestBackOff)
	}
	w := &wait{until: began.Add(p.longestWait())}
	if time.Until(w.until) <= 0 {
		return nil
	}
	w.reason = fmt.Sprintf("waiting for %s, which began to load at %s", l.title(), l.began.UTC().Format(time.TimeOnly+"Z"))
	if l.state == Waiting {
		w.reason = fmt.Sprintf("waiting for %s, which loads again (%s)", l.title(), l.reason)
	}
	if p.times.Last > 0 {
		w.reason += fmt.Sprintf("; the last load took %.1f s", p.times.Last.Seconds())
	}
	return w
}

// longestWait returns how long a load may take before starts stop waiting for it. The
// caller holds the lock.
func (p *Pool) longestWait() time.Duration {
	if p.times.Longest == 0 {
		return min(p.opts.FirstLoad, p.opts.LoadTime)
	}
	return min(2*p.times.Longest+loadMargin, p.opts.LoadTime)
}

// wakeWaiters wakes the starts that wait for a preloader. The caller holds the lock.
func (p *Pool) wakeWaiters() {
	close(p.changed)
	p.changed = make(chan struct{})
}
