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
	// OutcomeAnswered means that the engine (or, for a verb, the launcher)
	// answered whole, whatever the status.
	OutcomeAnswered Outcome = "answered"
	// OutcomeRefused means that the path or method does not pass.
	OutcomeRefused Outcome = "refused"
	// OutcomeHeldFull means that too many requests were held already.
	OutcomeHeldFull Outcome = "held_full"
	// OutcomeHeldTimeout means that the request was held until HoldTimeout was
	// over.
	OutcomeHeldTimeout Outcome = "held_timeout"
	// OutcomeFailed means that the launcher had said that the engine is gone.
	OutcomeFailed Outcome = "failed"
	// OutcomeEngineFailed means that the engine did not listen, or broke off.
	OutcomeEngineFailed Outcome = "engine_failed"
	// OutcomeCut means that a drain or a close ran out of time.
	OutcomeCut Outcome = "cut"
	// OutcomeClientGone means that the client went away.
	OutcomeClientGone Outcome = "client_gone"
)

// statusClientGone stands for an answer that no client was there to read, as in
// nginx's log.
const statusClientGone = 499

// Observation describes one request that has ended.
type Observation struct {
	Class    Class
	Status   int // HTTP status as sent; 101 for an upgrade, 499 when the client left before an answer
	Outcome  Outcome
	Duration time.Duration // from the request's header to the end of the answer, Held included
	Held     time.Duration // how long the request waited at the gate
}

// exchange is one request with its answer. It is the ResponseWriter that the
// reverse proxy writes to, and notes status, bytes and failures.
type exchange struct {
	http.ResponseWriter

	class   Class
	outcome Outcome
	status  int
	began   time.Time
	held    time.Duration
	hasBody bool // by the request's header

	writeFailed  atomic.Bool // the answer could not be written to the client
	uploadFailed atomic.Bool // the body of the client's request broke off
}

// WriteHeader notes the status, unless it is an informational one.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	n, err := x.ResponseWriter.Write(b)
	if err != nil {
		x.writeFailed.Store(true)
	}
	return n, err
}

// Hijack hands the connection over for an upgrade.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}

// uploadGrace is how long the rest of a request's body may take to come once the
// request is answered.
const uploadGrace = 500 * time.Millisecond

// endUpload bounds the time in which the server reads the rest of a request's body,
// before it writes the answer and again afterwards: that rest may never come.
func (x *exchange) endUpload() {
	if x.hasBody {
		// Fails only on a connection that is closed already, and in tests without one.
		_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(uploadGrace))
	}
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// upload is the body of a request on its way to the engine. net/http's server
// closes the body when the answer begins, while its transport may still read; when
// that read fails, the transport breaks the connection to the engine, and with it
// the answer. So a body that has ended stays ended, and a read that comes too late
// waits for the end of the answer.
type upload struct {
	io.ReadCloser

	done   <-chan struct{} // closed when the exchange is over
	failed *atomic.Bool    // set when the client breaks the body off
	ended  bool
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
