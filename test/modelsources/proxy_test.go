//go:build modelservers

package modelsources

import (
	"cmp"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// proxy notes what goes through it.
type proxy struct {
	address string
	mu      sync.Mutex
	ranges  []string
	sent    int64
	cuts    map[*http.Request]context.CancelFunc // of what is being answered

	user, password string // who is let through; empty: everybody
}

// wants has only one user be let through from now on.
func (p *proxy) wants(user, password string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user, p.password = user, password
}

// cut breaks off what is being answered.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.cuts {
		cancel()
	}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	p := &proxy{address: address, cuts: map[*http.Request]context.CancelFunc{}}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which is signed
	}, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)}
	server := &http.Server{Addr: address, ReadHeaderTimeout: patience.Wait(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		p.mu.Lock()
		p.cuts[r] = cancel
		user, password, _ := r.BasicAuth()
		let := p.user == "" || user == p.user && password == p.password
		if span := cmp.Or(r.Header.Get("Range"), r.Header.Get("X-Ms-Range")); span != "" {
			p.ranges = append(p.ranges, span)
		}
		p.mu.Unlock()
		if !let {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		defer func() {
			p.mu.Lock()
			delete(p.cuts, r)
			p.mu.Unlock()
		}()
		forward.ServeHTTP(&counting{ResponseWriter: w, proxy: p}, r.WithContext(ctx))
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ListenAndServe() })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return p
}

// counting counts the bytes of answers.
type counting struct {
	http.ResponseWriter
	proxy *proxy
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.proxy.sent += int64(n)
	return n, err
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// seen gives, and forgets, which parts were asked for, and how much was sent.
func (p *proxy) seen() (ranges []string, sent int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ranges, sent = p.ranges, p.sent
	p.ranges, p.sent = nil, 0
	return ranges, sent
}
