package api

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/browser"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const requestIDHeader = "X-Request-Id"

// observe gives every request an id, and calls Options.Observe when the request has
// ended.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if id == "" || len(id) > 128 {
			id = uuid.NewString()
		}
		out := &recorder{ResponseWriter: w, control: http.NewResponseController(w), stall: s.opts.StallTimeout, closing: s.streams.Done()}
		out.Header().Set(requestIDHeader, id)
		out.Header().Set("Server", "hotseat-launcher/"+s.opts.Version)
		stop := context.AfterFunc(s.streams, out.extend) // so that a write to a client that reads nothing does not delay the shutdown
		defer stop()
		began := time.Now()
		defer func() {
			took := time.Since(began)
			route := chi.RouteContext(r.Context()).RoutePattern()
			if route == "" {
				route = "unmatched"
			}
			if s.opts.Observe != nil {
				s.opts.Observe(route, knownMethod(r.Method), out.status(), took)
			}
			s.log.DebugContext(r.Context(), "request", "id", id, "method", r.Method, "path", r.URL.Path, "status", out.status(), "bytes", out.written, "took", took, "from", r.RemoteAddr)
		}()
		next.ServeHTTP(out, r)
	})
}

// knownMethod is a method of the HTTP standard, or "other" for any else, since
// clients can invent as many as they like.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	}
	return "other"
}

// recorder notes the status of an answer, and bounds each write.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	closing <-chan struct{} // closed when the server begins to shut down
	code    int
	written int64
}

func (r *recorder) status() int {
	if r.code == 0 {
		return http.StatusOK
	}
	return r.code
}

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.extend()
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	r.extend()
	n, err := r.ResponseWriter.Write(p)
	r.written += int64(n)
	return n, err
}

// extend sets the deadline of the next write. Writers of tests, which have no
// deadlines, do without.
func (r *recorder) extend() {
	patience := r.stall
	select {
	case <-r.closing:
		patience = min(patience, closingTimeout)
	default:
	}
	_ = r.control.SetWriteDeadline(time.Now().Add(patience))
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// recoverPanics turns a panic into a 500, where no answer was begun yet.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // the very value, as net/http compares it
				panic(v)
			}
			s.log.ErrorContext(r.Context(), "panic while answering", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
			if out, ok := w.(*recorder); ok && out.code != 0 {
				panic(http.ErrAbortHandler) // the answer is broken: let the client see that
			}
			newProblem(http.StatusInternalServerError, "internal error of the launcher; see its log", nil).write(w)
		}()
		next.ServeHTTP(w, r)
	})
}

// refuseOtherSites keeps web pages of other sites from calling the launcher through
// a browser.
func refuseOtherSites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := browser.CheckSite(r); err != nil {
			newProblem(http.StatusForbidden, err.Error(), nil).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseOtherNames keeps a web page from reaching a launcher without a token by a
// host name of the page's own site.
func (s *Server) refuseOtherNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Access == nil {
			if err := browser.CheckName(r); err != nil {
				newProblem(http.StatusForbidden, err.Error()+", or give it a token", nil).write(w)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Access == nil || s.isPublic(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := s.opts.Access.Allow(r)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		p := problemOf(err)
		if launcher.CodeOf(err) == launcherapi.CodeUnauthorized {
			p = p.with("WWW-Authenticate", `Bearer realm="hotseat launcher"`)
		}
		p.write(w)
	})
}

func (s *Server) isPublic(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch r.URL.Path {
	case healthPath, readyPath:
		return true
	case metricsPath:
		return s.opts.PublicMetrics
	}
	return false
}

// routePath is the path that chi looks up.
func routePath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.Path
}

// allowed lists the methods that a path takes.
func allowed(r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if chi.RouteContext(r.Context()).Routes.Match(chi.NewRouteContext(), method, routePath(r)) {
			methods = append(methods, method)
		}
	}
	if slices.Contains(methods, http.MethodGet) {
		methods = append(methods, http.MethodHead)
	}
	if methods == nil {
		return nil
	}
	return append(methods, http.MethodOptions)
}

// answerOptions answers OPTIONS with the methods that a path takes.
func (s *Server) answerOptions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			next.ServeHTTP(w, r)
			return
		}
		methods := allowed(r)
		if methods == nil {
			s.notFound(w, r)
			return
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		w.WriteHeader(http.StatusNoContent)
	})
}

// headAsGet has HEAD answered by the handlers of GET; net/http leaves out the body.
func headAsGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			chi.RouteContext(r.Context()).RouteMethod = http.MethodGet
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	newProblem(http.StatusNotFound, fmt.Sprintf("there is nothing at %s; GET / lists the operations", shorten(r.URL.Path, maxProblemLocation)), nil).write(w)
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	methods := strings.Join(allowed(r), ", ")
	if methods == "" {
		s.notFound(w, r)
		return
	}
	newProblem(http.StatusMethodNotAllowed, fmt.Sprintf("%s is not allowed at this path; it takes %s", shorten(r.Method, maxProblemLocation), methods), nil).with("Allow", methods).write(w)
}
