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
	// OutcomeHeldTimeout means that it was held until the hold's time was over.
	OutcomeHeldTimeout Outcome = "held_timeout"
	// OutcomeFailed means that the engine is gone, by the launcher's word.
	OutcomeFailed Outcome = "failed"
	// OutcomeEngineFailed means that the engine did not listen, or broke off.
	OutcomeEngineFailed Outcome = "engine_failed"
	// OutcomeCut means that a drain or a close ran out of time.
	OutcomeCut Outcome = "cut"
	// OutcomeClientGone means that the client went away.
	OutcomeClientGone Outcome = "client_gone"
)

// statusClientGone stands for the answer nobody was there to read, as in
// nginx's log.
const statusClientGone = 499

// Observation is one request, told when it has ended.
type Observation struct {
	Class    Class
	Status   int // HTTP status as sent; 101 for an upgrade, 499 when the client left before an answer
	Outcome  Outcome
	Duration time.Duration // from the request's header to its end, Held included
	Held     time.Duration // how long it waited at the gate
}

// exchange is one request with its answer. It is the ResponseWriter that the
// reverse proxy writes to, and notes what went over it.
type exchange struct {
	http.ResponseWriter

	class   Class
	outcome Outcome
	status  int
	began   time.Time
	held    time.Duration
	hasBody bool // the request, so far as its header tells

	writeFailed  atomic.Bool // the client does not take the answer
	uploadFailed atomic.Bool // the client's body broke off
}

// WriteHeader notes the status; informational ones are not the answer.
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

// endUpload bounds what the server does for an answer's sake before it writes
// the answer and again after that: it reads the rest of the request's body, which
// may never come.
func (x *exchange) endUpload() {
	if x.hasBody {
		// Fails only on a connection that is closed already, and in tests without one.
		_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(uploadGrace))
	}
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// upload is the body of a request on its way to the engine. net/http's server
// takes what is left of a body away when the answer begins, while its transport
// may still read, and breaks the connection to the engine, answer and all, when
// that read fails. So a body that has ended stays ended, and a read that comes
// too late waits for the answer to be through.
type upload struct {
	io.ReadCloser

	done   <-chan struct{} // closed when the exchange is over
	failed *atomic.Bool    // set when the client breaks it off
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
