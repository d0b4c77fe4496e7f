// Package requestertest has a scripted requester program, without listeners of its
// own, for tests and benches that need thousands. It speaks the requester's SPI as
// far as a controller calls it:
//
//	GET    /v1/dual-pods/accelerators
//	GET    /v1/proxy/config
//	PUT    /v1/proxy/config
//	DELETE /v1/proxy/config?binding=ID
//	POST   /v1/become-ready[?binding=ID]
//	POST   /v1/become-unready[?binding=ID]
//
// It carries no traffic: nothing is listened on, a target is not looked at, and who
// is unbound is so at once. Left out are therefore drains and the ports that may be
// taken; also the end of the program, probes, metrics, the log, the memory of the
// GPUs, and what is wrong with a request that no controller makes. [Script] makes
// the same calls to it, to the requester program itself and to other stand-ins.
package requestertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// Options are what New needs.
type Options struct {
	Instance string   // of the process; see requesterapi.Proxy
	GPUs     []string // UUIDs
	// BecameReady is told each time that the requester becomes ready, with its
	// binding and when the call came; nil: nobody is.
	BecameReady func(binding string, came time.Time)
}

// Requester is a scripted requester program. It is an [http.Handler] of the SPI.
type Requester struct {
	opts Options

	mu    sync.Mutex
	proxy requesterapi.Proxy
}

// New makes a requester that nobody is bound to.
func New(opts Options) *Requester {
	r := &Requester{opts: opts}
	r.unbind()
	return r
}

// ServeHTTP implements [http.Handler].
func (r *Requester) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	w.Header().Set(requesterapi.InstanceHeader, r.opts.Instance)
	id := request.URL.Query().Get(requesterapi.ParamBinding)
	switch request.Method + " " + request.URL.Path {
	case "GET " + requesterapi.PathAccelerators:
		answer(w, http.StatusOK, r.opts.GPUs)
	case "GET " + requesterapi.PathProxyConfig:
		r.mu.Lock()
		defer r.mu.Unlock()
		status := http.StatusOK
		if r.proxy.State == requesterapi.StateUnbound {
			status = http.StatusNotFound
		}
		answer(w, status, r.proxy)
	case "PUT " + requesterapi.PathProxyConfig:
		var config requesterapi.ProxyConfig
		if err := json.NewDecoder(request.Body).Decode(&config); err != nil {
			refuse(w, http.StatusBadRequest, requesterapi.CodeInvalid, "the body is not a proxy configuration: %v", err)
			return
		}
		r.do(w, config.Binding, func() any { return r.bind(w, config) })
	case "DELETE " + requesterapi.PathProxyConfig:
		r.do(w, id, func() any { r.unbind(); return requesterapi.Unbound{} })
	case "POST " + requesterapi.PathBecomeReady:
		came := time.Now()
		r.do(w, id, func() any { return r.becomeReady(w, came) })
	case "POST " + requesterapi.PathBecomeUnready:
		r.do(w, id, func() any { r.proxy.Ready = false; return done{} })
	default:
		http.NotFound(w, request)
	}
}

// done answers become-ready and become-unready.
type done struct {
	Ready bool `json:"ready"`
}

// do answers a call about a binding with what change gives; nil: it has answered.
func (r *Requester) do(w http.ResponseWriter, binding string, change func() any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proxy.State == requesterapi.StateBound && binding != "" && binding != r.proxy.Binding {
		refuse(w, http.StatusConflict, requesterapi.CodeOtherBinding, "this requester is bound to %s, not to %s: nothing has changed", r.proxy.Binding, binding)
		return
	}
	if body := change(); body != nil {
		answer(w, http.StatusOK, body)
	}
}

func (r *Requester) bind(w http.ResponseWriter, config requesterapi.ProxyConfig) any {
	switch {
	case r.proxy.State == requesterapi.StateUnbound:
		r.proxy.ProxyConfig, r.proxy.State = config, requesterapi.StateBound
	case r.proxy.ProxyConfig != config:
		refuse(w, http.StatusConflict, requesterapi.CodeOtherBinding, "binding %s exists already with other fields: DELETE it first", config.Binding)
		return nil
	}
	return r.proxy
}

func (r *Requester) unbind() {
	r.proxy = requesterapi.Proxy{Instance: r.opts.Instance, State: requesterapi.StateUnbound}
}

func (r *Requester) becomeReady(w http.ResponseWriter, came time.Time) any {
	if r.proxy.State == requesterapi.StateUnbound {
		refuse(w, http.StatusConflict, requesterapi.CodeUnbound, "this requester is not bound: PUT %s first", requesterapi.PathProxyConfig)
		return nil
	}
	r.proxy.Ready = true
	if r.opts.BecameReady != nil {
		r.opts.BecameReady(r.proxy.Binding, came)
	}
	return done{Ready: true}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	write(w, status, body)
}

func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	w.Header().Set("Content-Type", requesterapi.ProblemContentType)
	write(w, status, requesterapi.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)})
}

func write(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone when this fails
}
