package statedir

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Patience is how long an act waits for its record to be written. A disk that takes longer
// for one write stalls: acts are refused at once then, until that write has ended.
const Patience = 2 * time.Second

// Store is what a [Queue] writes to; [*Records] implements it.
type Store interface {
	// Put replaces the record of a name. On error the earlier record stays.
	Put(name string, record any) error
	// Doubt marks the record of a name as stale. It needs no room on the disk.
	Doubt(name string) error
	// Remove removes the record of a name. It needs no room on the disk.
	Remove(name string) error
}

// StallError says that the disk of the state folder does not answer.
type StallError struct{ Since time.Time }

func (e *StallError) Error() string {
	return fmt.Sprintf("the disk of the state folder does not answer since %s: see the kernel log, and the mount or volume that it is on", e.Since.UTC().Format(time.RFC3339))
}

// Queue writes records in the background, in the order of the calls: a disk that stalls
// holds up nobody but those that wait for their own record. A record that is replaced
// before its turn is not written; the later one takes its turn anew, so that it is not
// written before what came between the two. The zero value is ready for use.
//
// The goroutine that writes ends when there is nothing to write. [Queue.Settle] waits for
// it.
type Queue struct {
	mu      sync.Mutex
	waiting []*Write
	writing *Write // nil: nothing is being written
	began   time.Time
	running bool
	stalled time.Time // when the disk was last found to stall, or a write ended that took longer than Patience; zero: never
}

// Writer puts the records of one store into a queue.
type Writer struct {
	queue  *Queue
	store  Store
	failed func(name string, err error)

	late map[string]*Write // that failed and are to be tried again; the queue's lock guards it
}

// Write is a record that is to be written or removed.
type Write struct {
	writer *Writer // nil: do is called
	name   string
	record any // nil: the record is removed
	keep   bool
	do     func()

	done     chan struct{} // closed once it is written or has failed
	err      error
	misleads error // the earlier record is stale, and could not be marked so
}

// Writer returns a writer of a store. failed is told each failure of [Writer.Keep] and
// [Writer.Remove], from the queue's goroutine.
func (q *Queue) Writer(store Store, failed func(name string, err error)) *Writer {
	return &Writer{queue: q, store: store, failed: failed, late: map[string]*Write{}}
}

// Put writes a record, which nobody may change afterwards. If that fails, the earlier
// record stays.
func (w *Writer) Put(name string, record any) *Write {
	return w.enter(&Write{writer: w, name: name, record: record})
}

// Keep is Put for a record that tells what has happened already. If it fails, the earlier
// record is marked as stale, and the write is tried again after the next one that succeeds.
func (w *Writer) Keep(name string, record any) *Write {
	return w.enter(&Write{writer: w, name: name, record: record, keep: true})
}

// Remove removes a record. If that fails, it goes on as Keep does.
func (w *Writer) Remove(name string) *Write {
	return w.enter(&Write{writer: w, name: name, keep: true})
}

// Repeat writes a record again that is on the disk, so that a disk that stalls is noticed. It
// does nothing while a record of that name waits or is being written. If it fails, the earlier
// record stays, which says the same. A record that could not be written is tried again: a
// full disk can stall too.
func (w *Writer) Repeat(name string, record any) {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	isWriting := q.writing != nil && q.writing.writer == w && q.writing.name == name
	if isWriting || w.waits(name) {
		return
	}
	if late := w.late[name]; late != nil {
		delete(w.late, name)
		q.enter(w, late)
		return
	}
	q.enter(w, &Write{writer: w, name: name, record: record})
}

// Then calls do once everything is written that came before.
func (w *Writer) Then(do func()) { w.enter(&Write{do: do}) }

// Flush writes what could not be written before, and waits until all records of the store
// are written. It returns the first error.
func (w *Writer) Flush() error {
	q := w.queue
	q.mu.Lock()
	w.tryLateAgain()
	all := slices.DeleteFunc(q.pending(), func(one *Write) bool { return one.writer != w })
	q.mu.Unlock()
	return await(q, all)
}

// Settle waits until everything that came before is written or has failed, for at most
// [Patience]. It returns the first error.
func (q *Queue) Settle() error {
	q.mu.Lock()
	all := q.pending()
	q.mu.Unlock()
	return await(q, all)
}

// Wait waits until the record is written, or a later one of the same name, for at most
// [Patience]. It returns a [*StallError] at once if the disk stalls.
func (o *Write) Wait() error { return await(o.writer.queue, []*Write{o}) }

// WaitTold is Wait for an act after which a stale record would mislead the next launcher. A
// record that is marked as stale does not.
func (o *Write) WaitTold() error {
	err := o.Wait()
	if _, stalls := errors.AsType[*StallError](err); stalls {
		return err
	}
	return o.misleads
}

// StalledSince returns when the write began that takes longer than [Patience]; zero: the
// disk does not stall.
func (q *Queue) StalledSince() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stalls() {
		return time.Time{}
	}
	return q.began
}

// stalls reports whether the write that is being written takes longer than Patience. The lock
// is held.
func (q *Queue) stalls() bool { return q.writing != nil && time.Since(q.began) >= Patience }

// WellFor returns for how long the disk has not stalled; the longest duration: it never did.
func (q *Queue) WellFor() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stalls():
		return 0
	case q.stalled.IsZero():
		return math.MaxInt64
	}
	return time.Since(q.stalled)
}

// StalledAfter reports whether the disk has stalled since a time. It waits for what is being
// written, for at most [Patience].
func (q *Queue) StalledAfter(began time.Time) bool {
	_, stalls := errors.AsType[*StallError](q.Settle())
	return stalls || q.WellFor() < time.Since(began)
}

// UnderWay returns when the write began that is being written, and a channel that is closed
// when it has ended; nil: nothing is being written.
func (q *Queue) UnderWay() (began time.Time, ended <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing == nil {
		return time.Time{}, nil
	}
	return q.began, q.writing.done
}

// await waits for writes, for at most Patience, and not at all while the disk stalls.
func await(q *Queue, all []*Write) error {
	began := time.Now()
	patience := Patience
	if !q.StalledSince().IsZero() {
		patience = 0
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, one := range all {
		select {
		case <-one.done:
		case <-timer.C:
			if !one.isDone() {
				return &StallError{Since: q.reportStall(began)}
			}
			timer.Reset(0)
		}
		if one.err != nil {
			return one.err
		}
	}
	return nil
}

// reportStall returns since when the disk has stalled, for a caller that has waited since began and now gets the
// error. If no single write stalls, many slow ones have: then the disk counts as stalled from began until now.
func (q *Queue) reportStall(began time.Time) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalls() {
		return q.began
	}
	q.stalled = time.Now()
	return began
}

func (o *Write) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// pending returns what is not written yet. The lock is held.
func (q *Queue) pending() []*Write {
	if q.writing == nil {
		return slices.Clone(q.waiting)
	}
	return append([]*Write{q.writing}, q.waiting...)
}

func (w *Writer) enter(o *Write) *Write {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	delete(w.late, o.name)
	return w.queue.enter(w, o)
}

// enter gives a write its turn. It takes the place of an earlier one of the same name that
// waits: who waits for that one waits for this one then. The lock is held.
func (q *Queue) enter(w *Writer, o *Write) *Write {
	o.done = make(chan struct{})
	if n := slices.IndexFunc(q.waiting, func(e *Write) bool { return o.do == nil && e.writer == w && e.name == o.name }); n >= 0 {
		earlier := q.waiting[n]
		q.waiting = slices.Delete(q.waiting, n, n+1)
		earlier.record, earlier.keep = o.record, o.keep
		o = earlier
	}
	q.waiting = append(q.waiting, o)
	if !q.running {
		q.running = true
		go q.run()
	}
	return o
}

// run writes until nothing waits.
func (q *Queue) run() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		one := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.writing, q.began = one, time.Now()
		q.mu.Unlock()
		one.err = one.apply()
		if one.writer != nil {
			one.writer.wrote(one)
		}
		q.end()
		close(one.done)
	}
}

// end notes that the write that is being written has ended. It comes before anybody is told
// of that: the disk does not stall any more then.
func (q *Queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalls() {
		q.stalled = time.Now()
	}
	q.writing = nil
}

func (o *Write) apply() error {
	switch {
	case o.do != nil:
		o.do()
		return nil
	case o.record == nil:
		return o.writer.store.Remove(o.name)
	}
	return o.writer.store.Put(o.name, o.record)
}

// wrote has a write that failed be tried again, or those that failed before.
func (w *Writer) wrote(o *Write) {
	if o.err != nil && o.keep {
		if err := w.store.Doubt(o.name); err != nil {
			o.err = fmt.Errorf("%w; and its earlier record cannot be marked as stale: %w", o.err, err)
			o.misleads = o.err
		}
		w.failed(o.name, o.err)
	}
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	switch {
	case o.err == nil:
		w.tryLateAgain()
	case o.keep && !w.waits(o.name):
		w.late[o.name] = &Write{writer: w, name: o.name, record: o.record, keep: true}
	}
}

// waits reports whether a later record of the name waits for its turn. The lock is held.
func (w *Writer) waits(name string) bool {
	return slices.ContainsFunc(w.queue.waiting, func(e *Write) bool { return e.writer == w && e.name == name })
}

// tryLateAgain gives those that failed another turn. The lock is held.
func (w *Writer) tryLateAgain() {
	for name, late := range w.late {
		delete(w.late, name)
		w.queue.enter(w, late)
	}
}
