package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// bareProxyEnv makes this program the bare proxy: "LISTEN TARGET", two
// addresses, of which the second may be a Unix socket. It ends when its standard input does.
const bareProxyEnv = "HOTSEAT_BENCH_PROXY"

// serveBareProxy is the library's reverse proxy with nothing else, but as many
// idle connections to its target as it has clients: with its default of two it
// would dial for nearly every request.
func serveBareProxy(addresses string) {
	listen, target, _ := strings.Cut(addresses, " ")
	to := &url.URL{Scheme: "http", Host: "localhost"}
	transport := harness.EngineTransport(target)
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout, transport.DisableCompression = 256, 4*time.Second, true
	server := &http.Server{Addr: listen, ReadHeaderTimeout: patience, Handler: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: transport,
	}}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end of it is what is waited for
		_ = server.Close()                    // the process ends with it
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintf(os.Stderr, "bare proxy: %v\n", err)
		os.Exit(1)
	}
}

// bareProxy is that process.
type bareProxy struct {
	url string
	cmd *exec.Cmd
	end func() error // of its standard input
}

func (b *bench) startBareProxy(target string) (*bareProxy, error) {
	addr, err := harness.FreeAddress()
	if err != nil {
		return nil, err
	}
	p := &bareProxy{url: "http://" + addr, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), bareProxyEnv+"="+addr+" "+target)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	p.end = stdin.Close
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the bare proxy: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	err = eventually(b.ctx, "the bare proxy serves", func() (bool, error) {
		return ask(b.ctx, client, http.MethodGet, p.url+"/health") == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *bareProxy) stop() error {
	if err := errors.Join(p.end(), p.cmd.Wait()); err != nil {
		return fmt.Errorf("the bare proxy ended badly: %w", err)
	}
	return nil
}

// way is one way to the engine, and what was measured of it.
type way struct {
	url    string
	times  times
	took   time.Duration
	client *http.Client
	body   string // of each request
}

func (w *way) rate() float64 { return float64(len(w.times)) / w.took.Seconds() }

// proxy sends requests for one token to the same engine through an instance's
// public port, through a bare reverse proxy, and with no proxy at all, in turn.
func (b *bench) proxy() (rows []row, err error) {
	n, err := b.newNode("proxy")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	made, err := n.awake("proxied", spec(0, "--disable-uvicorn-access-log"))
	if err != nil {
		return nil, err
	}
	return b.besideBare("instance proxy", made, fmt.Sprintf("http://127.0.0.1:%d", made.Port), labelled{"", oneToken(0)})
}

// oneToken returns a request for one token, with a field that engines ignore and that makes it so
// many bytes longer.
func oneToken(padding int) string {
	return `{"model":"model","prompt":"hello","max_tokens":1,"temperature":0,"user":"` + strings.Repeat("x", padding) + `"}`
}

// besideBare sends requests for one token to an instance's engine by our address, through a bare
// reverse proxy, and with no proxy at all, from one client and from many. bodies are the requests, by
// what is said of them.
func (b *bench) besideBare(what string, made launcherapi.Instance, ours string, bodies ...labelled) (rows []row, err error) {
	engine, err := harness.EngineAddress(made.PID)
	if err != nil {
		return nil, err
	}
	bare, err := b.startBareProxy(engine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()
	for _, clients := range []int{1, 64} {
		for _, body := range bodies {
			more, err := b.compare(what+body.label, clients, ours, bare.url, engine, body.text)
			if err != nil {
				return nil, err
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

// labelled is a request, with what is said of it.
type labelled struct{ label, text string }

// compare measures the ways in rounds, so that all have their share of what
// else the machine does. engine is the engine's own address.
func (b *bench) compare(what string, clients int, ours, bare, engine, body string) ([]row, error) {
	const rounds = 6
	round := time.Duration(float64(600*time.Millisecond) * min(1, b.scale))
	ways := [3]way{{url: ours}, {url: bare}, {url: "http://localhost"}}
	for i, transport := range []*http.Transport{{}, {}, harness.EngineTransport(engine)} {
		transport.MaxIdleConnsPerHost, transport.DisableCompression = clients, true
		ways[i].body = body
		ways[i].client = &http.Client{Transport: transport}
		defer ways[i].client.CloseIdleConnections()
	}
	for r := range rounds + 1 {
		for i := range ways {
			if err := ways[i].load(b.ctx, clients, round, r > 0); err != nil {
				return nil, err
			}
		}
	}
	o, p, d := &ways[0], &ways[1], &ways[2]
	slower, rate := float64(o.times.P50())/float64(p.times.P50()), o.rate()/p.rate()
	label := fmt.Sprintf("%s, %d clients", what, clients)
	return []row{
		{
			Figure: label + ": latency (ms); bare: httputil.ReverseProxy", Samples: len(o.times), Ours: o.times.String(), Bare: p.times.String(),
			Beside: fmt.Sprintf("%.2f× at p50 (no proxy: %s)", slower, d.times), Target: "p50 ≤ 1.2×", Met: slower <= 1.2,
		},
		{
			Figure: label + ": requests/s; bare: httputil.ReverseProxy", Samples: len(o.times),
			Ours: fmt.Sprintf("%.0f", o.rate()), Bare: fmt.Sprintf("%.0f", p.rate()),
			Beside: fmt.Sprintf("%.2f× (no proxy: %.0f)", rate, d.rate()), Target: "≥ 0.8×", Met: rate >= 0.8,
		},
	}, nil
}

// load sends requests from some clients at once for a while; a round that does
// not count only warms up.
func (w *way) load(ctx context.Context, clients int, span time.Duration, counts bool) error {
	all, errs := make([]times, clients), make([]error, clients)
	began := time.Now()
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			for time.Since(began) < span && errs[c] == nil {
				sent := time.Now()
				errs[c] = w.post(ctx, w.body)
				all[c] = append(all[c], time.Since(sent))
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil || !counts {
		return err
	}
	w.took += time.Since(began)
	for _, some := range all {
		w.times = append(w.times, some...)
	}
	return nil
}

func (w *way) post(ctx context.Context, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	return finish(resp)
}
