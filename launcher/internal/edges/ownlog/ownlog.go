// Package ownlog writes the launcher's own log, and never lets the launcher wait for the
// reader of it: a terminal that was stopped by Ctrl-S, a pipe that nobody reads, a disk that
// does not answer.
package ownlog

import (
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// writeWait is how long a line may take to be written before Write stops waiting. As
	// long as the reader keeps up, a line is out when Write returns, so that a crash loses
	// none.
	writeWait = 100 * time.Millisecond
	// closeWait is how long Close waits for the lines that are not written yet.
	closeWait = time.Second
	// maxBytes bounds the lines that wait. Further ones are dropped.
	maxBytes = 1 << 20
)

// Writer is an io.Writer that writes in a goroutine of its own. Each call of Write is a
// line. Close ends the goroutine.
//
//	the reader keeps up               Write returns when the line is written
//	a line takes longer than          Write returns after writeWait; until all lines are
//	writeWait                         written, further calls return at once
//	more than maxBytes wait           lines are dropped until all that wait are written; then
//	                                  a line says how many were dropped
//	a line cannot be written          it is dropped
type Writer struct {
	to      io.Writer
	dropped func(lines int) []byte

	mu      sync.Mutex
	changed *sync.Cond // there is a line to write, or the writer was closed
	waiting []line
	bytes   int  // of the lines that wait
	behind  bool // a line took too long, and not all lines are written since
	lost    int  // lines dropped since the last line that says so
	closed  bool
	over    chan struct{} // closed when the goroutine has ended
}

type line struct {
	text    []byte
	written chan struct{} // closed when the line is written, or could not be
}

// New makes a writer to an output. The function dropped makes the line which says that lines
// were dropped.
func New(to io.Writer, dropped func(lines int) []byte) *Writer {
	w := &Writer{to: to, dropped: dropped, over: make(chan struct{})}
	w.changed = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// Write takes a line. It never fails.
func (w *Writer) Write(text []byte) (int, error) {
	written, wait := w.put(text)
	if !wait {
		return len(text), nil
	}
	timer := time.NewTimer(writeWait)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
		w.fallBehind(written)
	}
	return len(text), nil
}

// put lets a line wait to be written, or drops it. It reports whether Write is to wait.
func (w *Writer) put(text []byte) (written chan struct{}, wait bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}
	if w.lost > 0 || w.bytes+len(text) > maxBytes {
		w.lost++
		w.changed.Signal() // a single line that is too long finds nothing to wait behind
		return nil, false
	}
	l := line{text: slices.Clone(text), written: make(chan struct{})}
	w.waiting = append(w.waiting, l)
	w.bytes += len(text)
	w.changed.Signal()
	return l.written, !w.behind
}

// fallBehind notes that a line took too long, unless it was written meanwhile.
func (w *Writer) fallBehind(written chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-written:
	default:
		w.behind = true
	}
}

// run writes the lines until the writer is closed and no line waits.
func (w *Writer) run() {
	defer close(w.over)
	for {
		text, written, ok := w.next()
		if !ok {
			return
		}
		_, _ = w.to.Write(text) // the log is the place where an error would be told
		w.mu.Lock()
		w.bytes -= len(text)
		w.behind = w.behind && len(w.waiting) > 0
		close(written)
		w.mu.Unlock()
	}
}

// next waits for a line and takes it; ok is false when there is none and will be none.
func (w *Writer) next() (text []byte, written chan struct{}, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.waiting) == 0 && w.lost == 0 && !w.closed {
		w.changed.Wait()
	}
	if len(w.waiting) == 0 && w.lost > 0 {
		text, w.lost = w.dropped(w.lost), 0
		w.bytes += len(text)
		return text, make(chan struct{}), true
	}
	if len(w.waiting) == 0 {
		return nil, nil, false
	}
	l := w.waiting[0]
	w.waiting[0] = line{}
	w.waiting = w.waiting[1:]
	return l.text, l.written, true
}

// Close waits until all lines are written, for at most closeWait. A goroutine whose output
// takes no line even then is left to the end of the process.
func (w *Writer) Close() {
	w.mu.Lock()
	w.closed = true
	w.changed.Signal()
	w.mu.Unlock()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-w.over:
	case <-timer.C:
	}
}
