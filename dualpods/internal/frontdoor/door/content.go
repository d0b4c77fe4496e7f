package door

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// content is the body of a request as its attempts read it. The transport may still read for an attempt that has
// failed or was answered early, from a goroutine of its own: only the latest attempt gets bytes.
type content struct {
	mu      sync.Mutex
	attempt int   // that may read
	began   bool  // bytes of a body that is not held whole were asked for
	failed  error // of such a body: a mistake of the client

	reading sync.Mutex // held while bytes are read
}

// attemptBody is the body for one attempt.
type attemptBody struct {
	q       *request
	from    io.Reader
	attempt int
}

// next returns the body for the next attempt.
func (q *request) next() io.ReadCloser {
	from := io.Reader(q.body)
	if q.whole {
		from = q.body.Replay()
	}
	q.content.mu.Lock()
	defer q.content.mu.Unlock()
	q.content.attempt++
	return &attemptBody{q, from, q.content.attempt}
}

// Read gives the attempt its bytes, unless it is over.
func (b *attemptBody) Read(p []byte) (int, error) {
	c := &b.q.content
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	over := b.attempt != c.attempt
	c.began = c.began || !over
	c.mu.Unlock()
	if over {
		return 0, http.ErrBodyReadAfterClose
	}
	if !b.q.whole {
		b.q.boundReading(pauseTime)
	}
	n, err := b.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.mu.Lock()
		c.failed = slowly(err, pauseTime)
		c.mu.Unlock()
	}
	return n, err
}

// Close does nothing: the attempt ends with the next one, or with the request.
func (*attemptBody) Close() error { return nil }

// abandon ends the latest attempt. It reports whether the body can be sent again, and the client's mistake, if it
// made one.
func (q *request) abandon() (again bool, mistake error) {
	q.content.mu.Lock()
	defer q.content.mu.Unlock()
	q.content.attempt++
	return q.whole || !q.content.began, q.content.failed
}

// forget gives the memory of the body back. Nothing is sent again.
func (q *request) forget() {
	if q.body == nil {
		return
	}
	_, _ = q.abandon()
	if !q.whole && !q.content.reading.TryLock() {
		// A Pod has answered before it has read everything, and the client sends no more: the answer must end.
		q.boundReading(-time.Second)
		q.content.reading.Lock()
	} else if q.whole {
		q.content.reading.Lock()
	}
	defer q.content.reading.Unlock()
	_ = q.body.Close() // it has no errors
}

// boundReading bounds the time until the next bytes of the client.
func (q *request) boundReading(within time.Duration) {
	var at time.Time
	if within != 0 {
		at = time.Now().Add(within)
	}
	_ = http.NewResponseController(q.signs.Writer).SetReadDeadline(at) // where there are no deadlines, the server's own hold
}
