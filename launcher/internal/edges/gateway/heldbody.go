package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxReadAhead is how many bytes of a held request's body are read while it waits.
const maxReadAhead = 1 << 20

// heldBody is the body of a held request. A goroutine reads up to maxReadAhead of it
// while the request waits. Without that, neither the server nor the kernel would
// notice that the client has left: both notice it only after the client's last byte.
type heldBody struct {
	io.ReadCloser

	bound func(time.Time) // sets a deadline for reading the body
	done  chan struct{}   // closed when the goroutine has ended

	mu       sync.Mutex
	arrived  *sync.Cond // more bytes were read, or the reading in the background is over
	read     bytes.Buffer
	err      error // of the body, after the bytes that were read
	finished bool  // the reading in the background is over
}

// readAhead begins to read a request's body in the background. Read of the result
// returns the body from its beginning, and stop ends the reading. The result is nil
// when the request has no body, or when the client waits to be asked for it
// (Expect: 100-continue), or when conn is nil.
func readAhead(conn *clientConn, r *http.Request) *heldBody {
	if conn == nil || r.ContentLength == 0 || r.Header.Get("Expect") != "" {
		return nil
	}
	h := &heldBody{ReadCloser: r.Body, bound: conn.boundBody, done: make(chan struct{})}
	h.arrived = sync.NewCond(&h.mu)
	go h.run()
	return h
}

func (h *heldBody) run() {
	defer close(h.done)
	block := buffers.Get()
	defer buffers.Put(block)
	for left := maxReadAhead; ; {
		n, err := h.ReadCloser.Read(block[:min(left, len(block))])
		left -= n
		if h.take(block[:n], err, left == 0) {
			return
		}
	}
}

// take keeps bytes that were read. It reports whether the goroutine has to end.
func (h *heldBody) take(b []byte, err error, full bool) (finished bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read.Write(b)
	h.err, h.finished = err, err != nil || full
	h.arrived.Broadcast()
	return h.finished
}

// Read returns first the bytes that were read in the background, then the rest of
// the body.
func (h *heldBody) Read(b []byte) (int, error) {
	if n, err := h.next(b); n > 0 || err != nil {
		return n, err
	}
	return h.ReadCloser.Read(b)
}

// next returns bytes that were read in the background. It returns no bytes and no
// error when the rest of the body is still unread.
func (h *heldBody) next(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.read.Len() == 0 && !h.finished {
		h.arrived.Wait()
	}
	if h.read.Len() > 0 {
		return h.read.Read(b)
	}
	return 0, h.err
}

// stop ends the goroutine. broken means that its last read failed. If the read failed at the
// connection, perhaps because stop ended it, the server has cancelled all later requests of the
// connection, so it must not be used again. If an answer had begun, the read may also have failed
// because the server had read the rest itself, and had closed the body; the connection is then
// sound.
func (h *heldBody) stop() (broken bool) {
	select {
	case <-h.done:
	default:
		h.bound(time.Now())
		<-h.done
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err != nil && !errors.Is(h.err, io.EOF)
}
