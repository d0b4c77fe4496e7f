package requester

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func (r *Requester) probeRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+requesterapi.PathReady, r.getReady)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "OK") })
	mux.HandleFunc("GET /metrics", r.getMetrics)
	return mux
}

func (r *Requester) spiRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+requesterapi.PathAccelerators, r.serve(r.getAccelerators))
	mux.HandleFunc("GET "+requesterapi.PathAcceleratorMemoryUsage, r.serve(r.getMemoryUsage))
	mux.HandleFunc("POST "+requesterapi.PathBecomeReady, r.serve(r.postReady))
	mux.HandleFunc("POST "+requesterapi.PathBecomeUnready, r.serve(r.postUnready))
	mux.HandleFunc("GET "+requesterapi.PathReady, r.getReady)
	mux.HandleFunc("POST "+requesterapi.PathSetLog, r.serve(r.postLog))
	mux.HandleFunc("GET "+requesterapi.PathProxyConfig, r.getProxy)
	mux.HandleFunc("PUT "+requesterapi.PathProxyConfig, r.serve(r.putProxy))
	mux.HandleFunc("DELETE "+requesterapi.PathProxyConfig, r.serve(r.deleteProxy))
	mux.HandleFunc("PUT "+requesterapi.PathProxyHold, r.serve(r.putHold))
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set(requesterapi.InstanceHeader, r.instance)
		if r.opts.ClientCAFile != "" && !mtls.Shown(request) && (request.Method != http.MethodGet || request.URL.Path != requesterapi.PathReady) {
			r.answerProblem(w, request, failed(requesterapi.CodeForbidden, "%v", mtls.ErrNotShown))
			return
		}
		mux.ServeHTTP(w, request)
	})
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client is gone when this fails
}

func (r *Requester) getAccelerators(*http.Request) (any, error) {
	uuids, err := r.accelerators.uuids()
	if err != nil {
		return nil, failed(requesterapi.CodeNoAccelerators, "cannot find out which GPUs this Pod has: %v", err)
	}
	return uuids, nil
}

func (r *Requester) getMemoryUsage(*http.Request) (any, error) {
	usage, err := r.accelerators.memory()
	if errors.Is(err, errNobodyKnows) {
		return nil, failed(requesterapi.CodeNotSupported, "%v", err)
	}
	if err != nil {
		return nil, err
	}
	return usage, nil
}

type done struct {
	Ready bool `json:"ready"`
}

func (r *Requester) postReady(request *http.Request) (any, error) {
	if err := r.becomeReady(request.URL.Query().Get(requesterapi.ParamBinding)); err != nil {
		return nil, err
	}
	r.opts.Logger.Info("ready")
	return done{Ready: true}, nil
}

func (r *Requester) postUnready(request *http.Request) (any, error) {
	if err := r.becomeUnready(request.URL.Query().Get(requesterapi.ParamBinding)); err != nil {
		return nil, err
	}
	r.opts.Logger.Info("unready")
	return done{}, nil
}

func (r *Requester) postLog(request *http.Request) (any, error) {
	query := request.URL.Query()
	start, err := startPos(query)
	if err != nil {
		return nil, err
	}
	id := query.Get(requesterapi.ParamBinding)
	if err := r.means(id); err != nil {
		return nil, err
	}
	name := query.Get(requesterapi.ParamLog)
	if err := checkName(requesterapi.ParamLog, name); err != nil {
		return nil, err
	}
	chunk, err := body(request, requesterapi.MaxLogChunk)
	if err != nil {
		return nil, err
	}
	return r.log.add(request.Context(), cmp.Or(name, id), start, chunk)
}

func startPos(query url.Values) (int64, error) {
	text := query.Get(requesterapi.ParamStartPos)
	start, err := strconv.ParseInt(text, 10, 64)
	if err != nil || start < 0 || start > math.MaxInt64-requesterapi.MaxLogChunk {
		return 0, invalid("%s is %q: give the position of the chunk's first byte in the log, 0 or more", requesterapi.ParamStartPos, text)
	}
	return start, nil
}

// getProxy answers 404 while nobody is bound, as the community's requester does;
// the body is the same.
func (r *Requester) getProxy(w http.ResponseWriter, _ *http.Request) {
	status, proxy := http.StatusOK, r.status()
	if proxy.State == requesterapi.StateUnbound {
		status = http.StatusNotFound
	}
	answerJSON(w, status, "application/json", proxy)
}

func (r *Requester) putProxy(request *http.Request) (any, error) {
	content, err := body(request, requesterapi.MaxConfig)
	if err != nil {
		return nil, err
	}
	config, err := readConfig(content)
	if err != nil {
		return nil, err
	}
	if err := r.bind(config); err != nil {
		return nil, err
	}
	r.opts.Logger.Info("bound", "binding", config.Binding, "serving_port", config.ServingPort, "target", config.Target())
	return r.status(), nil
}

// readConfig reads what PUT brings and fills in what may be left out.
func readConfig(content []byte) (requesterapi.ProxyConfig, error) {
	var config requesterapi.ProxyConfig
	if err := readObject(content, &config, "proxy configuration", example); err != nil {
		return config, err
	}
	if err := checkConfig(config); err != nil {
		return config, err
	}
	if config.Binding == "" {
		config.Binding = config.Target()
	}
	if config.ServingPort == 0 {
		config.ServingPort = requesterapi.DefaultServingPort
	}
	return config, nil
}

// readObject reads the one JSON object of a body, without unknown fields.
func readObject(content []byte, into any, what, example string) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return invalid("the body is not a %s: %v: send an object such as %s", what, err, example)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("the body has more after the %s: send one object", what)
	}
	return nil
}

func (r *Requester) putHold(request *http.Request) (any, error) {
	content, err := body(request, requesterapi.MaxConfig)
	if err != nil {
		return nil, err
	}
	var hold requesterapi.Hold
	if err := readObject(content, &hold, "hold", holdExample); err != nil {
		return nil, err
	}
	if hold.Binding == "" {
		return nil, invalid("binding is missing: name the binding that connections are held for")
	}
	if err := checkName("binding", hold.Binding); err != nil {
		return nil, err
	}
	hold.ServingPort = cmp.Or(hold.ServingPort, requesterapi.DefaultServingPort)
	if err := r.hold(hold); err != nil {
		return nil, err
	}
	r.opts.Logger.Info("holding connections", "binding", hold.Binding, "serving_port", hold.ServingPort)
	return r.status(), nil
}

func (r *Requester) deleteProxy(request *http.Request) (any, error) {
	query := request.URL.Query()
	id := query.Get(requesterapi.ParamBinding)
	if id == "" {
		return nil, invalid("%s is missing: name the binding to end", requesterapi.ParamBinding)
	}
	limits := drainFor{timeout: requesterapi.DefaultDrainTimeout, idle: requesterapi.DefaultIdleTimeout}
	for name, d := range map[string]*time.Duration{requesterapi.ParamDrainTimeout: &limits.timeout, requesterapi.ParamIdleTimeout: &limits.idle} {
		if err := readDuration(query, name, requesterapi.MaxDrain, d); err != nil {
			return nil, err
		}
	}
	return r.unbind(request.Context(), id, limits)
}

func readDuration(query url.Values, name string, most time.Duration, d *time.Duration) error {
	if !query.Has(name) {
		return nil
	}
	given, err := time.ParseDuration(query.Get(name))
	if err != nil || given < 0 || given > most {
		return invalid("%s is %q: give a duration from 0s to %s, such as 10s or 500ms", name, query.Get(name), most)
	}
	*d = given
	return nil
}
