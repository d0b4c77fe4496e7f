package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Outcome says how a request ended.
type Outcome string

const (
	// OutcomeAnswered means that the engine (or, for a verb, the launcher) gave a
	// whole answer, with any status.
	OutcomeAnswered Outcome = "answered"
	// OutcomeRefused means that the request's path or method is not allowed.
	OutcomeRefused Outcome = "refused"
	// OutcomeHeldFull means that too many requests were held already.
	OutcomeHeldFull Outcome = "held_full"
	// OutcomeHeldTimeout means that the request was held for the whole of
	// HoldTimeout.
	OutcomeHeldTimeout Outcome = "held_timeout"
	// OutcomeFailed means that the gate had failed: the engine is gone.
	OutcomeFailed Outcome = "failed"
	// OutcomeEngineFailed means that the engine did not listen, or broke its answer
	// off.
	OutcomeEngineFailed Outcome = "engine_failed"
	// OutcomeCut means that Drain or Close cut the request at its deadline.
	OutcomeCut Outcome = "cut"
	// OutcomeClientGone means that the client left before it had the whole answer.
	OutcomeClientGone Outcome = "client_gone"
)

// statusClientGone is the status of a request whose client left before an answer, as
// in nginx's log.
const statusClientGone = 499

// Observation describes one request that has ended.
type Observation struct {
	Class    Class
	Status   int // HTTP status as sent; 101 for an upgrade, 499 when the client left before an answer
	Outcome  Outcome
	Duration time.Duration // from the request's header to the end of the answer, including Held
	Held     time.Duration // how long the request waited at the gate
}

// exchange is one request with its answer. The reverse proxy writes the answer to
// it, and the exchange records its status and failures.
type exchange struct {
	http.ResponseWriter

	conn    *clientConn // nil: another server received the request
	class   Class
	outcome Outcome
	status  int
	began   time.Time
	held    time.Duration
	grace   time.Duration // uploadGrace, except in tests
	body    *heldBody     // nil: the request was not held, or its body is not read ahead
	broken  bool          // the last read of the held body failed, as heldBody.stop says
	allow   func(h http.Header)
	settle  func()                  // called once no cut may break the answer off; nil: no inference
	sign    func()                  // called when something of the engine's answer is written; nil: no inference
	upgrade func(net.Conn) net.Conn // takes over the client's connection as a WebSocket; nil: no inference

	writeFailed  atomic.Bool // writing the answer to the client failed
	uploadFailed atomic.Bool // reading the client's body failed
}

// WriteHeader records the status, unless it is an informational one.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		x.status = status
	}
	x.noteSign()
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) noteSign() {
	if x.sign != nil {
		x.sign()
	}
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.noteSign()
	n, err := x.ResponseWriter.Write(b)
	if err != nil {
		x.writeFailed.Store(true)
	}
	return n, err
}

// Hijack gives the connection to the reverse proxy, for an upgrade.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if x.upgrade == nil {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.status = http.StatusSwitchingProtocols
	return x.upgrade(conn), rw, nil
}

// uploadGrace is how long the server still reads a request's body once the request
// is answered.
const uploadGrace = 500 * time.Millisecond

// endUpload sets a deadline for the rest of the request's body, which may never
// arrive. The server reads that rest before it writes the answer, and again
// afterwards. endUpload does nothing when another server received the request.
func (x *exchange) endUpload() { x.conn.boundBody(time.Now().Add(x.grace)) }

// noLongerCut notes that no cut may break the answer off from now on.
func (x *exchange) noLongerCut() {
	if x.settle != nil {
		x.settle()
	}
}

// stopHeldBody ends the reading of a held request's body in the background.
func (x *exchange) stopHeldBody() {
	if x.body == nil || !x.body.stop() {
		return
	}
	x.broken = true
	x.Header().Set("Connection", "close") // has no effect once the answer has begun
}

// Unwrap lets http.ResponseController reach the server's ResponseWriter.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// upload is the body of a request on its way to the engine. When the answer begins,
// net/http's server closes the body, but the transport to the engine may still read
// it. If that read failed, the transport would close the connection to the engine
// and break off the answer. Therefore a read after the body's end returns io.EOF
// again, and a read after the body was closed waits for the end of the answer.
type upload struct {
	io.ReadCloser

	done   <-chan struct{} // closed when the exchange has ended
	failed *atomic.Bool    // set when reading the client's body fails
	ended  bool            // Read has returned io.EOF
}

func (u *upload) Read(b []byte) (int, error) {
	if u.ended {
		return 0, io.EOF
	}
	n, err := u.ReadCloser.Read(b)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		u.ended = true
	case errors.Is(err, http.ErrBodyReadAfterClose):
		<-u.done
	default:
		u.failed.Store(true)
	}
	return n, err
}
