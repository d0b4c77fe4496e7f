package door_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/door"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
)

// BenchmarkDoor compares a front door with a bare ReverseProxy: 16 clients, an engine that answers 1 KB. Both take
// turns, so that what else the machine does slows both. x-p50 and x-rate are the front door's figures in units of the
// proxy's.
func BenchmarkDoor(b *testing.B) {
	text := bytes.Repeat([]byte("x"), 1024)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(text)
	}))
	defer engine.Close()
	transport := func() *http.Transport {
		return &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, DialContext: new(net.Dialer).DialContext}
	}
	address, _ := url.Parse(engine.URL)
	bare := httptest.NewServer(&httputil.ReverseProxy{Transport: transport(), Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(address); p.SetXForwarded() }})
	defer bare.Close()

	s := &side{own: demand.NewOwn()}
	through := transport()
	through.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address.Host) // whatever the Pod's address
	}
	s.Door, s.dir = door.New(door.Options{
		Own: s.own, Peers: nobody{}, Namespace: func(string) string { return namespace }, Access: access.New(namespace, false),
		Transport: through, SignEvery: time.Hour, Observer: metrics.New(s.own), Logger: slog.New(slog.DiscardHandler),
	})
	s.model(false)
	for n := range 4 {
		s.pod(n)
	}
	front := httptest.NewServer(s)
	defer front.Close()

	took := map[string][]time.Duration{}
	var seconds [2]float64
	for b.Loop() {
		for i, at := range []string{bare.URL, front.URL} {
			since := time.Now()
			took[at] = append(took[at], load(b, at)...)
			seconds[i] += time.Since(since).Seconds()
		}
	}
	p50 := func(at string) time.Duration {
		slices.Sort(took[at])
		return took[at][len(took[at])/2]
	}
	b.ReportMetric(float64(p50(front.URL).Microseconds()), "µs-p50")
	b.ReportMetric(float64(p50(bare.URL).Microseconds()), "µs-bare-p50")
	b.ReportMetric(float64(p50(front.URL))/float64(p50(bare.URL)), "x-p50")
	b.ReportMetric(seconds[0]/seconds[1], "x-rate")
}

// load has 16 clients ask, one request after another, and returns how long each took.
func load(b *testing.B, at string) (all []time.Duration) {
	b.Helper()
	const clients, each = 16, 100
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			for range each {
				since := time.Now()
				got, err := client.Post(at+"/v1/chat/completions", "application/json", strings.NewReader(chat))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, got.Body)
				_ = got.Body.Close()
				mu.Lock()
				all = append(all, time.Since(since))
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return all
}
