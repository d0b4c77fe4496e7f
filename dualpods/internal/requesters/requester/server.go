package requester

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// bodyTime bounds how long a request with its body may take to come. It also bounds what the
// server reads of a body that a handler has left, before and after the answer.
const bodyTime = 30 * time.Second

const (
	headerTime = 10 * time.Second // in which the header of a request has to come
	idleTime   = 2 * time.Minute  // that a connection may be open without a request
)

// mostIgnored bounds what is read of a body that is too large.
const mostIgnored = 16 << 20

// server is an HTTP server on a port that is listened on already.
type server struct {
	listener net.Listener
	http     *http.Server
	running  sync.WaitGroup
}

// newServer makes a server that takes at most opts.connections.
func newServer(l net.Listener, handler http.Handler, opts Options) *server {
	s := &server{listener: l, http: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: cmp.Or(opts.headerTime, headerTime),
		ReadTimeout:       cmp.Or(opts.bodyTime, bodyTime),
		IdleTimeout:       cmp.Or(opts.idleTime, idleTime),
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(opts.Logger.Handler(), slog.LevelDebug),
	}}
	connlimit.New(opts.connections).Watch(s.http)
	return s
}

// start serves until close; an error that is none of close's goes to failed.
func (s *server) start(failed chan<- error) {
	s.running.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("cannot serve on %s: %w", s.listener.Addr(), err)
		}
	})
}

func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	_ = s.listener.Close() // closed already, unless the server was never started
	s.running.Wait()
	return err
}

// cut closes without waiting for answers under way.
func (s *server) cut() error {
	err := s.http.Close()
	_ = s.listener.Close() // closed already, unless the server was never started
	s.running.Wait()
	return err
}

// failure is an answer that is not what was asked for.
type failure struct{ requesterapi.Problem }

func (f *failure) Error() string { return f.Detail }

var statusOfCode = map[string]int{
	requesterapi.CodeInvalid:        http.StatusBadRequest,
	requesterapi.CodeForbidden:      http.StatusForbidden,
	requesterapi.CodeLogGap:         http.StatusBadRequest,
	requesterapi.CodeUnbound:        http.StatusConflict,
	requesterapi.CodeOtherBinding:   http.StatusConflict,
	requesterapi.CodeDraining:       http.StatusConflict,
	requesterapi.CodeTerminating:    http.StatusConflict,
	requesterapi.CodePortTaken:      http.StatusConflict,
	requesterapi.CodeTooLarge:       http.StatusRequestEntityTooLarge,
	requesterapi.CodeNoAccelerators: http.StatusInternalServerError,
	requesterapi.CodeInternal:       http.StatusInternalServerError,
	requesterapi.CodeNotSupported:   http.StatusNotImplemented,
}

func failed(code, format string, args ...any) *failure {
	status := statusOfCode[code]
	return &failure{requesterapi.Problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), Code: code}}
}

func invalid(format string, args ...any) error {
	return failed(requesterapi.CodeInvalid, format, args...)
}

// refused is a failure that names who is bound.
func refused(code string, bound *binding, format string, args ...any) error {
	f := failed(code, format, args...)
	if bound != nil {
		f.Binding = bound.config.Binding
	}
	return f
}

// handler answers a request: with what it returns as JSON, or with a problem.
type handler func(r *http.Request) (any, error)

func (r *Requester) serve(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		answer, err := handle(request)
		if err != nil {
			r.answerProblem(w, request, err)
			return
		}
		answerJSON(w, http.StatusOK, "application/json", answer)
	}
}

func (r *Requester) answerProblem(w http.ResponseWriter, request *http.Request, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = failed(requesterapi.CodeInternal, "%v", err)
	}
	r.opts.Logger.Warn("refused a request", "method", request.Method, "path", request.URL.Path, "status", f.Status, "detail", f.Detail)
	answerJSON(w, f.Status, requesterapi.ProblemContentType, f.Problem)
}

func answerJSON(w http.ResponseWriter, status int, contentType string, answer any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone when this fails
}

// body reads what the request brings, up to most bytes. The server bounds how long that takes.
func body(r *http.Request, most int) ([]byte, error) {
	came := connlimit.AwaitBody(r)
	defer came()
	content, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	if err != nil {
		return nil, invalid("the body ended early, after %d bytes: %v", len(content), err)
	}
	if len(content) > most {
		_, _ = io.CopyN(io.Discard, r.Body, mostIgnored) // so that the client is done writing when it is answered
		return nil, failed(requesterapi.CodeTooLarge, "the body has more than %d bytes: send a smaller one", most)
	}
	return content, nil
}
