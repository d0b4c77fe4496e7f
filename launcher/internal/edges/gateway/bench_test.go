package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// completion is an answer of usual size.
var completion = `{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"` + strings.Repeat("word ", 100) + `"}]}`

// BenchmarkProxy compares the proxy with a bare httputil.ReverseProxy, which has the
// same transport, and with no proxy at all. It runs with 1 and with 64 clients, and
// reports the median and the rate.
func BenchmarkProxy(b *testing.B) {
	engine := newEngine(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, completion)
	})
	for _, clients := range []int{1, 64} {
		for _, c := range []struct {
			name string
			url  string
		}{
			{"direct", engine.URL},
			{"bare", newBareProxy(b, engine.URL)},
			{"gateway", openProxy(b, engine.URL).url("")},
		} {
			b.Run(c.name+"/clients="+strconv.Itoa(clients), func(b *testing.B) {
				measure(b, c.url+"/v1/completions", clients)
			})
		}
	}
}

// newBareProxy starts a httputil.ReverseProxy with the gateway's transport.
func newBareProxy(b *testing.B, target string) string {
	b.Helper()
	to, err := url.Parse(target)
	require.NoError(b, err)
	transport := newTransport(to.Host, 0)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport: transport,
	})
	b.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	return server.URL
}

// measure sends b.N requests from the given number of clients at once.
func measure(b *testing.B, url string, clients int) {
	b.Helper()
	client := newClient(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, clients)
	var running sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	for n := range clients {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				sent := time.Now()
				got := post(b, client, url, `{"prompt":"hello","max_tokens":100}`)
				times[n] = append(times[n], time.Since(sent))
				if got.err != nil || got.body != completion {
					b.Error(got)
					return
				}
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(len(all))/took.Seconds(), "req/s")
}
