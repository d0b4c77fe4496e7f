package supervisor

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// This file bounds calls that read and write files of an instance: its log, its lease, its
// compile cache. A disk that stalls holds up a call for as long as it stalls.

// mostDiskCalls bounds how many calls may hang at once: each takes a thread.
const mostDiskCalls = 64

// diskCalls counts the calls that have not returned.
type diskCalls struct{ running atomic.Int64 }

var errDiskStalls = errors.New("the disk does not answer")

// briefPatience is how long such a call is waited for while the disk is known to stall: it
// may go to another disk.
const briefPatience = 50 * time.Millisecond

// bounded makes a call that reads or writes files, and waits for at most
// [statedir.Patience]. The call goes on afterwards, and ends with the answer of the disk:
// late is told then, if it is not nil. The supervisor does not wait for it when it closes.
func bounded[T any](s *Supervisor, what string, call func() (T, error), late func(T, error)) (T, error) {
	patience := statedir.Patience
	if !s.StalledSince().IsZero() {
		patience = briefPatience
	}
	type answer struct {
		value T
		err   error
	}
	var none T
	if s.disk.running.Add(1) > mostDiskCalls {
		s.disk.running.Add(-1)
		return none, fmt.Errorf("cannot %s: %w: %d calls wait for it", what, errDiskStalls, mostDiskCalls)
	}
	answers, given := make(chan answer, 1), &atomic.Bool{}
	go func() {
		defer s.disk.running.Add(-1)
		value, err := call()
		if given.Swap(true) {
			if late != nil {
				late(value, err)
			}
			return
		}
		answers <- answer{value, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
	}
	if given.Swap(true) { // it has answered at this moment
		a := <-answers
		return a.value, a.err
	}
	return none, fmt.Errorf("cannot %s: %w within %s", what, errDiskStalls, patience)
}

// boundedCall is [bounded] for a call that returns an error alone.
func boundedCall(s *Supervisor, what string, call func() error, late func()) error {
	_, err := bounded(s, what, func() (struct{}, error) { return struct{}{}, call() }, func(struct{}, error) {
		if late != nil {
			late()
		}
	})
	return err
}

// logSize returns the length of an instance's log; 0: it is not known.
func (s *Supervisor) logSize(name string) int64 {
	size, err := bounded(s, "measure the log "+name, func() (int64, error) { return s.opts.Logs.Size(name), nil }, nil)
	if err != nil {
		s.log.Warn("the length of a log is not known", "log", name, "error", err)
	}
	return size
}

// watchLog returns a channel that receives a value when an instance's log grows, and ends
// the watch. nil: the log cannot be watched.
func (s *Supervisor) watchLog(name string) (grown <-chan struct{}, unwatch func()) {
	type watch struct {
		grown <-chan struct{}
		end   func()
	}
	w, err := bounded(s, "watch the log "+name, func() (w watch, err error) {
		w.grown, w.end, err = s.opts.Logs.Watch(name)
		return w, err
	}, func(w watch, err error) {
		if err == nil {
			w.end()
		}
	})
	if err != nil {
		s.log.Warn("cannot watch a log; readiness is found by polling alone", "log", name, "error", err)
		return nil, func() {}
	}
	return w.grown, w.end
}

// createLog creates the log of an instance.
func (s *Supervisor) createLog(id string) (*os.File, string, error) {
	type created struct {
		file *os.File
		name string
	}
	c, err := bounded(s, "create the log of instance "+id, func() (c created, err error) {
		c.file, c.name, err = s.opts.Logs.Create(id)
		return c, err
	}, func(c created, err error) {
		if err == nil {
			_ = c.file.Close() // nothing was written to it
		}
	})
	return c.file, c.name, err
}
