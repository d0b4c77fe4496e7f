package gateway

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// maxAhead is how much of a held request's body is read while it waits.
const maxAhead = 1 << 20

// ahead is the body of a held request, of which up to maxAhead is read in the
// background while the request waits: neither the server nor the kernel learns that
// a client has left before all that the client had sent was read.
type ahead struct {
	io.ReadCloser

	conn net.Conn      // the client's
	done chan struct{} // closed when the reading in the background is over

	mu      sync.Mutex
	arrived *sync.Cond // more bytes were read, or the reading in the background is over
	read    bytes.Buffer
	err     error // of the body, after the bytes that were read
	over    bool  // the reading in the background is over
}

// readAhead begins to read a request's body, which Read then gives from its
// beginning; end it with stop. Where there is no body, or the client waits to be
// asked for the body (Expect: 100-continue), the request stays as it is and the
// result is nil, whose stop does nothing.
func readAhead(conn net.Conn, r *http.Request) *ahead {
	if conn == nil || r.ContentLength == 0 || r.Header.Get("Expect") != "" {
		return nil
	}
	a := &ahead{ReadCloser: r.Body, conn: conn, done: make(chan struct{})}
	a.arrived = sync.NewCond(&a.mu)
	go a.run()
	return a
}

func (a *ahead) run() {
	defer close(a.done)
	block := buffers.Get()
	defer buffers.Put(block)
	for left := maxAhead; ; {
		n, err := a.ReadCloser.Read(block[:min(left, len(block))])
		left -= n
		if a.take(block[:n], err, left == 0) {
			return
		}
	}
}

// take keeps bytes that were read, and says whether the reading is over.
func (a *ahead) take(b []byte, err error, full bool) (over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read.Write(b)
	a.err, a.over = err, err != nil || full
	a.arrived.Broadcast()
	return a.over
}

// Read gives first the bytes that were read in the background, then the rest of the
// body.
func (a *ahead) Read(b []byte) (int, error) {
	if n, err := a.next(b); n > 0 || err != nil {
		return n, err
	}
	return a.ReadCloser.Read(b)
}

// next gives bytes that were read in the background; none and no error when all
// were given and the body goes on.
func (a *ahead) next(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.read.Len() == 0 && !a.over {
		a.arrived.Wait()
	}
	if a.read.Len() > 0 {
		return a.read.Read(b)
	}
	return 0, a.err
}

// stop ends the reading in the background. The connection of a client that has not
// sent its whole body by now is not used again.
func (a *ahead) stop() {
	if a == nil {
		return
	}
	select {
	case <-a.done:
	default:
		_ = a.conn.SetReadDeadline(time.Now()) // fails only on a connection that is closed already
		<-a.done
	}
}
