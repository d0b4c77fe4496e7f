package gateway

import (
	"context"
	"net/http"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// A script in a browser that calls another origin sends a preflight before most requests,
// and can read an answer only if its header allows that. The engine decides who may. The
// proxy holds a preflight until it can answer, and gives its own answers the header that the
// engine gave its last one.

// mustWait reports whether a preflight has to wait for the engine, as the request after it:
// the gate is shut, and the engine does not listen yet.
func (p *Proxy) mustWait(ctx context.Context) bool {
	if !p.gate.isShut() {
		return false
	}
	conn, err := engine.Dial(ctx, p.options.Target)
	if err != nil {
		return true
	}
	_ = conn.Close() // only opened
	return false
}

// allowed is what the engine last allowed a script, and to which origin.
type allowed struct{ origin, to, credentials string }

// The headers that allow scripts to read an answer
// (https://fetch.spec.whatwg.org/#http-responses).
const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
)

// noteAllowed remembers what an answer of the engine allows. It is called for every answer.
func (p *Proxy) noteAllowed(answer *http.Response) error {
	a := allowed{origin: answer.Request.Header.Get("Origin"), to: answer.Header.Get(allowOrigin), credentials: answer.Header.Get(allowCredentials)}
	if last := p.allowed.Load(); a.to != "" && (last == nil || *last != a) {
		p.allowed.Store(&a)
	}
	return nil
}

// allow lets a script read an answer of the proxy's own, if the engine lets it read its.
func (p *Proxy) allow(h http.Header, r *http.Request) {
	a, origin := p.allowed.Load(), r.Header.Get("Origin")
	if a == nil || origin == "" || a.to != "*" && a.origin != origin {
		return
	}
	h.Set(allowOrigin, a.to)
	if a.credentials != "" {
		h.Set(allowCredentials, a.credentials)
	}
	if a.to != "*" {
		h.Add("Vary", "Origin")
	}
}
