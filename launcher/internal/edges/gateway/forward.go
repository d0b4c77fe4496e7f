package gateway

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

const (
	// bufferBytes is the size of the buffers that bodies are copied through.
	bufferBytes = 32 << 10
	// maxIdleToEngine bounds the connections kept open to one engine.
	maxIdleToEngine = 256
	// engineIdleTimeout closes idle connections to the engine before the engine
	// does: vLLM closes them after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE), and a
	// request sent at that moment would be lost.
	engineIdleTimeout = 4 * time.Second
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

func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            new(net.Dialer).DialContext,
		DisableCompression:     true,
		MaxIdleConns:           maxIdleToEngine,
		MaxIdleConnsPerHost:    maxIdleToEngine,
		IdleConnTimeout:        engineIdleTimeout,
		MaxResponseHeaderBytes: maxAnswerHeaderBytes,
	}
}

func (p *Proxy) newReverseProxy(errorLog *log.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.engine,
		FlushInterval: -1,
		BufferPool:    &buffers,
		ErrorHandler:  p.engineError,
		ErrorLog:      errorLog,
	}
}

// rewrite addresses a request to the engine. The client's Host header stays, since
// the engine makes redirects from it, and the query stays as it was written. Of
// upgrades only WebSocket passes: an engine that switched to HTTP/2 would take
// further requests on that connection, past every check made here.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = p.options.Target
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.SetXForwarded()
	if !wantsWebSocket(r.In) {
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Upgrade")
	}
}

// wantsWebSocket says whether a request asks for that upgrade and no other.
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

// ServeHTTP refuses a request, answers it, or forwards it, by its class.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, began: p.options.Now(), hasBody: r.ContentLength != 0}
	defer p.observe(x)
	defer x.endUpload()
	if v, ok := verbOf(r); ok && p.options.Verbs != nil {
		x.class = ClassVerb
		p.serveVerb(v, x, r)
		return
	}
	x.class = Classify(r.Method, r.RequestURI, wantsWebSocket(r))
	switch x.class {
	case ClassInference:
		p.serveInference(x, r)
	case ClassStatus:
		p.serveStatus(x, r)
	case ClassRefused, ClassVerb:
		x.answer(refusePath(r.Method, rawPath(r)))
	}
}

// rawPath is the path as it stood in the request line.
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
	if reason, gone := p.gate.why(); gone {
		x.answer(refuseFailed(reason))
		return
	}
	p.forward(r.Context(), x, r)
}

func (p *Proxy) serveInference(x *exchange, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	t := &ticket{conn: connOf(ctx), cancel: cancel}
	held, refused := p.gate.enter(t)
	if held != nil {
		if body := readAhead(t.conn, r); body != nil {
			defer body.stop()
			r = r.WithContext(ctx) // a copy: the server goes by the body of its own
			r.Body = body
		}
		refused = p.hold(ctx, x, held)
	}
	if refused != nil {
		x.answer(refused)
		return
	}
	defer p.gate.leave(t)
	p.forward(ctx, x, r)
}

// forward hands the request to the engine and notes the outcome. The reverse proxy
// breaks an answer off by a panic, which is passed on to the server.
func (p *Proxy) forward(ctx context.Context, x *exchange, r *http.Request) {
	r = r.WithContext(ctx) // a copy: the server goes by the body of its own
	if r.ContentLength != 0 {
		r.Body = &upload{ReadCloser: r.Body, done: ctx.Done(), failed: &x.uploadFailed}
	}
	ended := false
	defer func() {
		if !ended {
			x.outcome = brokenOff(x, r)
		}
	}()
	p.reverse.ServeHTTP(x, r)
	ended = x.outcome != "" || !wasCut(r)
	if !ended {
		panic(http.ErrAbortHandler) // the connection has a deadline from the cut and must not be used again
	}
	if x.outcome == "" {
		x.outcome = OutcomeAnswered
	}
}

// brokenOff is the outcome of an answer that was broken off: by a cut, by the
// client, or by the engine.
func brokenOff(x *exchange, r *http.Request) Outcome {
	switch {
	case wasCut(r):
		return OutcomeCut
	case r.Context().Err() != nil, x.writeFailed.Load(), x.uploadFailed.Load():
		return OutcomeClientGone
	default:
		return OutcomeEngineFailed
	}
}

// wasCut says whether a drain or Close ended the request.
func wasCut(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), errCut) }

// engineError answers a request that the engine did not answer.
func (p *Proxy) engineError(w http.ResponseWriter, r *http.Request, err error) {
	x := w.(*exchange)
	reason, _ := p.gate.why()
	var dial *net.OpError
	switch {
	case wasCut(r):
		x.answer(refuseCut(reason))
	case r.Context().Err() != nil:
		x.status, x.outcome = statusClientGone, OutcomeClientGone
		panic(http.ErrAbortHandler)
	case x.uploadFailed.Load():
		x.answer(refuseUpload())
	case errors.As(err, &dial) && dial.Op == "dial":
		x.answer(refuseNotListening(reason))
	default:
		x.answer(refuseBroken(err))
	}
}
