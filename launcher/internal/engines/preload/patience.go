package preload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// This file keeps preloaders that do not answer while the disk of the state folder stalls:
// they may be waiting for that disk, to write their logs, and go on once it answers
// (spec/decisions/0150).

// Disk is the disk of the state folder.
type Disk interface {
	// Touch writes something to the disk in the background: a disk that stalls is noticed
	// by nothing else. It does nothing while something is being written.
	Touch()
	// StalledAfter reports whether the disk has stalled since a time. It waits a moment for
	// what is being written.
	StalledAfter(began time.Time) bool
	// UnderWay returns when the write began that is being written, and a channel that is
	// closed when it has ended; nil: nothing is being written.
	UnderWay() (began time.Time, ended <-chan struct{})
}

const (
	// stallLimit is how long a preloader that does not answer is kept for a disk that stalls.
	stallLimit = 10 * time.Minute
	// diskCheck is the time between two writes by which a disk that stalls is noticed.
	diskCheck = time.Second
)

// withPatience returns a context for a call that a preloader has to answer within a limit.
// If the disk stalled meanwhile, the preloader has the whole limit again once the disk
// answers. The context ends at the latest after stallLimit and two limits.
func (p *Pool) withPatience(ctx context.Context, limit time.Duration) (patient context.Context, stop func()) {
	patient, cut := context.WithCancelCause(ctx)
	p.wait.Go(func() {
		var until time.Time // zero: the disk was not waited for yet
		for {
			began := time.Now()
			p.touchDisk(patient, limit)
			if patient.Err() != nil {
				return
			}
			stalled := p.diskStalledAfter(began)
			if stalled && until.IsZero() {
				until = time.Now().Add(stallLimit)
				p.opts.Logger.Warn("a preloader does not answer while the disk stalls; it is kept until the disk answers", "at_most", stallLimit)
			}
			if !stalled || !p.awaitDisk(patient, until) {
				cut(context.DeadlineExceeded)
				return
			}
		}
	})
	return patient, func() { cut(context.Canceled) }
}

// touchDisk writes to the disk now and then until a time is over or ctx ends.
func (p *Pool) touchDisk(ctx context.Context, during time.Duration) {
	over := time.NewTimer(during)
	defer over.Stop()
	tick := time.NewTicker(diskCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if p.opts.Disk != nil {
				p.opts.Disk.Touch()
			}
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// diskStalledAfter reports whether a preloader that has not answered since a time may have
// waited for the disk.
func (p *Pool) diskStalledAfter(began time.Time) bool {
	if p.opts.Disk == nil {
		return false
	}
	p.opts.Disk.Touch()
	return p.opts.Disk.StalledAfter(began)
}

// awaitDisk waits until the disk answers. It returns false if the disk does not answer until
// then, or ctx ends first.
func (p *Pool) awaitDisk(ctx context.Context, until time.Time) bool {
	_, answers := p.opts.Disk.UnderWay()
	if answers == nil {
		return time.Now().Before(until)
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-answers:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// judgeSilence decides about a preloader whose process r did not fork: err says why. If it
// gave no answer in time, and the disk has stalled since it was asked, it is kept, and
// judgeSilence returns true: r.turn is given back when the preloader has answered.
func (p *Pool) judgeSilence(l *preloader, r *run, asked time.Time, err error) (kept bool) {
	if errors.Is(err, errNoAnswer) && p.diskStalledAfter(asked) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ctx.Err() == nil { // so that Close waits for it
			limit := p.opts.AnswerTime
			p.wait.Go(func() { p.awaitLateAnswer(l, r, limit) })
			return true
		}
	}
	p.abandon(l, r, fmt.Sprintf("it did not fork: %v", err))
	return false
}

// receiveInTime receives the answer of a preloader until the deadline of its connection, and
// has a disk that stalls meanwhile be noticed. If there is no answer, the error is
// errNoAnswer.
func (p *Pool) receiveInTime(r *run, into *answer) error {
	ctx, stop := context.WithCancel(p.ctx)
	touched := make(chan struct{})
	go func() {
		defer close(touched)
		p.touchDisk(ctx, p.opts.AnswerTime)
	}()
	err := r.conn.receive(into)
	stop()
	<-touched
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errNoAnswer
	}
	return err
}

// errNoAnswer says that a preloader has its request, and did not answer in time.
var errNoAnswer = fmt.Errorf("it did not answer: %w", os.ErrDeadlineExceeded)

// awaitLateAnswer waits for an answer that nobody waits for any more, so that the preloader
// can be asked again. A process that was forked meanwhile has ended: its gate is closed. An
// error is no reason against the preloader here: the control group of that process may have
// been removed before the preloader forked. If the preloader cannot fork, the next Fork finds
// that out.
func (p *Pool) awaitLateAnswer(l *preloader, r *run, limit time.Duration) {
	defer func() { r.turn <- struct{}{} }()
	ctx, stop := p.withPatience(p.ctx, limit)
	defer stop()
	p.wait.Go(func() {
		select {
		case <-r.tree.Done():
			stop()
		case <-ctx.Done():
		}
	})
	var late answer
	err := r.conn.SetDeadline(time.Time{})
	if err == nil {
		stopCut := context.AfterFunc(ctx, func() { _ = r.conn.SetDeadline(time.Unix(1, 0)) }) // fails only on a closed connection
		err = r.conn.receive(&late)
		if !stopCut() {
			err = errNoAnswer // the connection has a deadline that is over
		}
	}
	switch {
	case err != nil:
		p.abandon(l, r, fmt.Sprintf("it did not fork: %v", err))
	case late.Refused != "":
		p.abandon(l, r, "it did not fork: "+late.Refused)
	}
}
