package gateway

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

const (
	// bufferBytes is the size of the buffers that bodies are copied through.
	bufferBytes = 32 << 10
	// maxIdleToEngine bounds the connections kept open to one engine.
	maxIdleToEngine = 256
	// mostEarly is how long before the engine the proxy closes an idle connection.
	mostEarly = time.Second
	// maxAnswerHeaderBytes bounds the header of an engine's answer.
	maxAnswerHeaderBytes = 1 << 20
)

// buffers are shared by all proxies, so that idle proxies hold none.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if buffer, ok := b.pool.Get().(*[bufferBytes]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferBytes)
}

func (b *bufferPool) Put(buffer []byte) { b.pool.Put((*[bufferBytes]byte)(buffer)) }

// newTransport returns the transport to the engine at an address. The engine would lose a
// request that comes just when it closes an idle connection. So the proxy closes
// connections earlier, by half the time at most.
func newTransport(target string, keepAlive time.Duration) *http.Transport {
	keepAlive = cmp.Or(keepAlive, engine.DefaultKeepAlive)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, stop := untilRequestEnds(ctx)
			defer stop()
			return engine.Dial(ctx, target)
		},
		DisableCompression:     true,
		DisableKeepAlives:      keepAlive < 0,
		MaxIdleConns:           maxIdleToEngine,
		MaxIdleConnsPerHost:    maxIdleToEngine,
		IdleConnTimeout:        keepAlive - min(mostEarly, keepAlive/2),
		MaxResponseHeaderBytes: maxAnswerHeaderBytes,
	}
}

// requestKey is the key of the context of a forwarded request in that context's own values.
type requestKey struct{}

// untilRequestEnds returns the context of a dial that ends with the request for which the
// transport dials. The transport by itself continues to dial for a client that is gone, and
// the queue of the engine's socket may be full for as long as the engine hangs.
func untilRequestEnds(dial context.Context) (ctx context.Context, stop func()) {
	request, ok := dial.Value(requestKey{}).(context.Context)
	if !ok {
		return dial, func() {}
	}
	ctx, cancel := context.WithCancel(dial)
	release := context.AfterFunc(request, cancel)
	return ctx, func() { release(); cancel() }
}

func (p *Proxy) newReverseProxy(errorLog *log.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.engine,
		FlushInterval: -1,
		BufferPool:    &buffers,
		ErrorHandler:  p.engineError,
		ErrorLog:      errorLog,

		ModifyResponse: p.noteAllowed,
	}
}

// rewrite addresses a request to the engine. It keeps the client's Host header,
// since the engine makes redirects from it, and the query exactly as written. It
// removes every upgrade but WebSocket: an engine that switched to HTTP/2 would take
// further requests on that connection, which this proxy could not check.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = "localhost" // the transport knows the address
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.SetXForwarded()
	if !wantsWebSocket(r.In) {
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Upgrade")
	}
}

// wantsWebSocket reports whether a request asks for an upgrade to WebSocket and to
// no other protocol.
func wantsWebSocket(r *http.Request) bool {
	upgrade := r.Header["Upgrade"]
	if r.Method != http.MethodGet || len(upgrade) != 1 || !strings.EqualFold(upgrade[0], "websocket") {
		return false
	}
	for _, line := range r.Header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// ServeHTTP refuses, answers or forwards a request, as its class says.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = p.withoutSlash(r)
	x := &exchange{ResponseWriter: w, conn: connOf(r.Context()), began: p.options.Now(), grace: p.uploadGrace, allow: func(h http.Header) { p.allow(h, r) }}
	defer p.observe(x)
	defer func() {
		if !x.broken { // otherwise the server might read on, and use the connection again
			x.endUpload()
		}
	}()
	if v, ok := verbOf(r); ok && p.options.Verbs != nil {
		x.class = ClassVerb
		p.serveVerb(v, x, r)
		return
	}
	x.class = p.paths.Classify(r.Method, r.RequestURI, wantsWebSocket(r))
	switch x.class {
	case ClassInference:
		p.serveInference(x, r)
	case ClassStatus:
		if inference.IsPreflight(r) && p.mustWait(r.Context()) {
			p.serveInference(x, r)
			return
		}
		p.serveStatus(x, r)
	case ClassRefused, ClassVerb:
		x.answer(refusePath(r.Method, rawPath(r)))
	}
}

// withoutSlash returns a request without the slash at the end of its path, if the path is
// served so. The engine's framework would redirect to it. Many requests cannot follow: a
// preflight, an upgrade to WebSocket, a body that is sent only once.
func (p *Proxy) withoutSlash(r *http.Request) *http.Request {
	path, query, asked := strings.Cut(r.RequestURI, "?")
	path, slash := strings.CutSuffix(path, "/")
	if !slash || p.paths.Classify(r.Method, path, wantsWebSocket(r)) == ClassRefused {
		return r
	}
	r = r.WithContext(r.Context()) // a copy: the server needs its own request unchanged
	url := *r.URL
	url.Path, url.RawPath = path, ""
	r.URL, r.RequestURI = &url, path
	if asked {
		r.RequestURI += "?" + query
	}
	return r
}

// rawPath returns the path exactly as it stands in the request line.
func rawPath(r *http.Request) string {
	raw, _, _ := strings.Cut(r.RequestURI, "?")
	return raw
}

func (p *Proxy) observe(x *exchange) {
	if p.options.Observe == nil {
		return
	}
	p.options.Observe(Observation{
		Class:    x.class,
		Status:   x.status,
		Outcome:  x.outcome,
		Duration: p.options.Now().Sub(x.began),
		Held:     x.held,
	})
}

func (p *Proxy) serveStatus(x *exchange, r *http.Request) {
	if reason, engineGone := p.gate.currentReason(); engineGone {
		x.answer(refuseEngineGone(reason))
		return
	}
	p.forward(r.Context(), x, r)
}

func (p *Proxy) serveInference(x *exchange, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	t := &ticket{conn: x.conn, cancel: cancel}
	held, refused := p.gate.enter(t)
	if held != nil {
		x.body = readAhead(t.conn, r)
		defer x.stopHeldBody()
		if x.body != nil {
			r = r.WithContext(ctx) // a copy: the server needs its own body unchanged
			r.Body = x.body
		}
		refused = p.hold(ctx, x, held)
	}
	if refused != nil {
		x.answer(refused)
		return
	}
	defer p.gate.leave(t)
	x.settle = t.settle
	x.sign = p.gate.quiet.noteSign
	x.upgrade = func(conn net.Conn) net.Conn { return p.upgraded(conn, t) }
	p.forward(ctx, x, r)
}

// forward sends the request to the engine and records the outcome. The reverse proxy
// panics when it breaks off an answer; forward lets the panic reach the server.
func (p *Proxy) forward(ctx context.Context, x *exchange, r *http.Request) {
	r = r.WithContext(context.WithValue(ctx, requestKey{}, ctx)) // a copy: the server needs its own body unchanged
	if r.ContentLength != 0 {
		r.Body = &upload{ReadCloser: r.Body, done: ctx.Done(), failed: &x.uploadFailed}
	}
	ended := false
	defer func() {
		if !ended {
			x.outcome = outcomeOfBrokenAnswer(x, r)
		}
	}()
	p.reverse.ServeHTTP(x, r)
	x.noLongerCut()
	ended = x.outcome != "" || !wasCut(r)
	if !ended {
		panic(http.ErrAbortHandler) // the cut set a deadline on the connection, so it must not be used again
	}
	if x.outcome == "" {
		x.outcome = OutcomeAnswered
	}
}

// outcomeOfBrokenAnswer tells who broke the answer off: the launcher by a cut, the
// client, or the engine.
func outcomeOfBrokenAnswer(x *exchange, r *http.Request) Outcome {
	switch {
	case wasCut(r):
		return OutcomeCut
	case r.Context().Err() != nil, x.writeFailed.Load(), x.uploadFailed.Load():
		return OutcomeClientGone
	default:
		return OutcomeEngineFailed
	}
}

// wasCut reports whether Drain or Close cut the request.
func wasCut(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errCut) }

// engineError answers a request when the engine gave no answer.
func (p *Proxy) engineError(w http.ResponseWriter, r *http.Request, err error) {
	x := w.(*exchange)
	x.noLongerCut() // so that no cut comes between the choice of an answer and its end
	reason, _ := p.gate.currentReason()
	var dial *net.OpError
	switch {
	case wasCut(r):
		x.answer(refuseCut(reason))
	case r.Context().Err() != nil:
		x.status, x.outcome = statusClientGone, OutcomeClientGone
		panic(http.ErrAbortHandler)
	case x.uploadFailed.Load():
		x.answer(refuseBrokenUpload())
	case errors.As(err, &dial) && dial.Op == "dial":
		if engine.Refused(err) && p.options.OnRefused != nil {
			p.options.OnRefused()
		}
		x.answer(refuseNotListening(reason))
	default:
		x.answer(refuseBrokenAnswer(err))
	}
}
