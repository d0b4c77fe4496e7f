package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"hotseat.dev/hotseat/test/enginesim/internal/engine"
	"hotseat.dev/hotseat/test/enginesim/internal/link"
)

// ServeHTTP finds the route as FastAPI does, and writes uvicorn's access log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lw := &logged{ResponseWriter: w}
	if s.opts.AccessLog {
		lw.line = func(status int) {
			s.opts.Log.Plain("INFO:     %s - \"%s %s %s\" %d %s", clientOf(r), r.Method, r.URL.RequestURI(), r.Proto, status, http.StatusText(status))
		}
	}
	h := w.Header()
	h.Set("Server", "uvicorn")
	h.Set("Vary", "Origin")
	if r.Header.Get("Origin") != "" {
		h.Set("Access-Control-Allow-Origin", "*")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			preflight(lw, r)
			return
		}
	}
	s.route(lw, r)
}

// clientOf is who made a request, as uvicorn logs it: over a Unix socket it knows the client
// only if it may believe the proxy.
func clientOf(r *http.Request) string {
	if r.RemoteAddr != "@" {
		return r.RemoteAddr
	}
	if forwarded := r.Header.Get("X-Forwarded-For"); forwarded != "" && os.Getenv("FORWARDED_ALLOW_IPS") == "*" {
		return forwarded + ":0"
	}
	return ""
}

// preflight answers a browser that asks whether it may make a request.
func preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network")
	h.Set("Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", "2")
	w.WriteHeader(http.StatusOK)
	//nolint:errcheck // a client that went away needs no answer
	w.Write([]byte("OK"))
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	path := s.pathOf(r)
	if !s.allowed(r) {
		w.Header().Del("Vary") // that middleware lies below this one
		reply(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
		return
	}
	if path == realtimePath && isWebSocket(r) {
		s.realtime(w, r)
		return
	}
	methods := s.routes[path]
	if methods == nil {
		s.elsewhere(w, r)
		return
	}
	found, ok := methods[r.Method]
	if !ok {
		w.Header().Set("Allow", strings.Join(s.first(path).methods, ", "))
		reply(w, http.StatusMethodNotAllowed, detail{"Method Not Allowed"})
		return
	}
	found.handle(w, r)
}

// pathOf is the path that is routed: without the root path, where it begins
// with that (starlette.routing.get_route_path).
func (s *Server) pathOf(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, s.opts.RootPath)
	if !ok || rest != "" && rest[0] != '/' {
		return r.URL.Path
	}
	return rest
}

// elsewhere answers for a path that has no route: 404, or a redirect when a
// slash at the end is all that is wrong.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request) {
	other, ok := strings.CutSuffix(s.pathOf(r), "/")
	if !ok {
		other += "/"
	}
	if s.routes[other] == nil {
		reply(w, http.StatusNotFound, detail{"Not Found"})
		return
	}
	to := "http://" + r.Host + other
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", to)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// first is the first route of a path: FastAPI names its methods alone when
// another one is used.
func (s *Server) first(path string) route {
	for _, r := range s.table {
		if r.path == path {
			return r
		}
	}
	return route{}
}

// guarded are the paths that vLLM asks a key for; all others are open.
var guarded = []string{"/v1", "/v2", "/inference", "/cohere"}

// allowed checks the bearer token.
func (s *Server) allowed(r *http.Request) bool {
	if len(s.opts.APIKeys) == 0 || r.Method == http.MethodOptions {
		return true
	}
	open, path := true, strings.TrimPrefix(r.URL.Path, s.opts.RootPath)
	for _, prefix := range guarded {
		open = open && !strings.HasPrefix(path, prefix)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given, match := sha256.Sum256([]byte(token)), 0
	for _, k := range s.opts.APIKeys {
		key := sha256.Sum256([]byte(k))
		match |= subtle.ConstantTimeCompare(given[:], key[:])
	}
	return open || match == 1 && strings.EqualFold(scheme, "bearer")
}

// broken answers a call that the engine could not carry out. call names one of
// EngineCore's methods, "" for a request for an answer.
func (s *Server) broken(w http.ResponseWriter, call string, err error) {
	fail(w, http.StatusInternalServerError, "InternalServerError", "", "%s", explain(call, err))
}

func explain(call string, err error) string {
	switch {
	case errors.Is(err, engine.ErrDead) || errors.Is(err, link.ErrGone):
		return engine.ErrDead.Error()
	case call != "":
		return fmt.Sprintf("Call to %s method failed: %s", call, err)
	}
	return err.Error()
}

// logged writes the access log when the answer begins, as uvicorn does.
type logged struct {
	http.ResponseWriter
	line func(status int) // nil when there is no access log, or it was written
}

func (l *logged) WriteHeader(status int) {
	if l.line != nil {
		l.line(status)
		l.line = nil
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (l *logged) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// hijack takes the connection over, after the answer 101 was logged.
func hijack(w http.ResponseWriter) (net.Conn, error) {
	if l, ok := w.(*logged); ok && l.line != nil {
		l.line(http.StatusSwitchingProtocols)
		l.line = nil
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("cannot take the connection over: %w", err)
	}
	if n := buffered.Reader.Buffered(); n > 0 {
		return nil, errors.Join(fmt.Errorf("the client sent %d bytes before the upgrade", n), conn.Close())
	}
	return conn, nil
}
