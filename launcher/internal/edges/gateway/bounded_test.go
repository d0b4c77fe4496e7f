package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// closeUnbounded closes a proxy with a context that never ends, as the supervisor
// does at the end of an instance. Then it listens on the port again.
func closeUnbounded(t *testing.T, p *Proxy) error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- p.Close(context.Background()) }()
	var err error
	select {
	case err = <-closed:
	case <-time.After(patience.Wait()):
		require.FailNow(t, "the port is not closed, for it waits for a client")
	}
	again, listening := Listen(Options{Name: "b", Host: "127.0.0.1", Port: p.Port(), Logger: p.options.Logger})
	require.NoError(t, listening, "a port that was given back can be had at once")
	require.NoError(t, again.Close(patientContext(t)))
	return err
}

// requestWithoutBody sends the header of a request and never its body.
func requestWithoutBody(t *testing.T, p *Proxy, line string) net.Conn {
	t.Helper()
	conn := dialRaw(t, p.address())
	_, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	return conn
}

func TestCloseDoesNotWaitForMissingBody(t *testing.T) {
	reached := make(chan struct{}, 1)
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	verb := func(o *Options) { o.Verbs = &fakeVerbs{} }
	for name, c := range map[string]struct {
		line  string
		open  bool
		begun func(*Proxy, *observer) bool
	}{
		"held":         {line: "POST /v1/completions", begun: func(p *Proxy, _ *observer) bool { return p.Held() == 1 }},
		"in flight":    {line: "POST /v1/completions", open: true, begun: func(p *Proxy, _ *observer) bool { return len(reached) == 1 }},
		"a read":       {line: "GET /metrics", open: true, begun: func(p *Proxy, _ *observer) bool { return len(reached) == 1 }},
		"refused":      {line: "POST /collective_rpc", open: true, begun: func(_ *Proxy, o *observer) bool { return len(o.all()) == 1 }},
		"a verb":       {line: "POST /sleep", open: true, begun: func(_ *Proxy, o *observer) bool { return len(o.all()) == 1 }},
		"not answered": {line: "GET /v1/realtime", open: true, begun: func(p *Proxy, _ *observer) bool { return len(reached) == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &observer{}
			p := newProxy(t, engine.URL, verb, func(o *Options) { o.Observe = seen.observe })
			if c.open {
				p.Open()
			}
			conn := requestWithoutBody(t, p, c.line)
			eventually(t, func() bool { return c.begun(p, seen) })
			_ = closeUnbounded(t, p) // with or without an error: the engine may still read the body
			_, err := io.ReadAll(conn)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the client's connection is closed")
			for len(reached) > 0 {
				<-reached
			}
		})
	}
}

func TestCloseAnswersHeldRequestWithoutBody(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	conn := requestWithoutBody(t, p, "POST /v1/completions")
	eventually(t, func() bool { return p.Held() == 1 })
	require.NoError(t, closeUnbounded(t, p))
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(all), "HTTP/1.1 503 Service Unavailable")
	require.Contains(t, string(all), "the public port is being closed: the engine is starting")
}

func TestRefusedRequestWithoutBodyIsAnswered(t *testing.T) {
	p := openProxy(t, "127.0.0.1:1")
	conn := requestWithoutBody(t, p, "POST /collective_rpc")
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(all), "HTTP/1.1 404 Not Found")
	require.Contains(t, string(all), "Connection: close")
}

func TestCloseDoesNotWaitForClientThatReadsNothing(t *testing.T) {
	for _, path := range []string{"/v1/models", "/v1/responses"} { // a read, and inference
		t.Run(path, func(t *testing.T) {
			block := strings.Repeat("x", 1<<20)
			var written atomic.Int64
			engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
				for {
					n, err := io.WriteString(w, block)
					written.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			p := openProxy(t, engine.URL)
			conn := dialRaw(t, p.address())
			_, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			require.NoError(t, err)
			eventually(t, func() bool { return written.Load() > 0 })
			require.Error(t, closeUnbounded(t, p), "the answer was broken off")
		})
	}
}

func TestCloseDoesNotWaitForIncompleteHeaders(t *testing.T) {
	p := openProxy(t, "127.0.0.1:1")
	for _, beginning := range []string{"", "POST /v1/comp", "POST /v1/completions HTTP/1.1\r\nHost: local"} {
		conn := dialRaw(t, p.address())
		_, err := io.WriteString(conn, beginning)
		require.NoError(t, err)
	}
	require.NoError(t, closeUnbounded(t, p))
}

func TestCloseEndsUpgradedConnectionsInEveryState(t *testing.T) {
	engine := newEngine(t, upgrading)
	p := openProxy(t, engine.URL)
	whole, _, _ := upgrade(t, p, "/v1/realtime", webSocket)
	half, _, _ := upgrade(t, p, "/v1/realtime", webSocket)
	require.NoError(t, half.(*net.TCPConn).CloseWrite())
	asking := dialRaw(t, p.address())
	_, err := io.WriteString(asking, "GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	require.NoError(t, err)
	require.Error(t, closeUnbounded(t, p), "the upgraded connection was cut")
	_, err = io.ReadAll(whole)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

func TestCloseDoesNotWaitForStuckVerb(t *testing.T) {
	stuck := &stuckVerbs{called: make(chan struct{}), release: make(chan struct{})}
	p := openProxy(t, "127.0.0.1:1", func(o *Options) { o.Verbs = stuck })
	asked := make(chan answer, 1)
	r := request(t.Context(), t, http.MethodGet, p.url("/is_sleeping"), nil)
	client := newClient(t)
	go func() { asked <- do(client, r) }()
	receive(t, stuck.called)
	require.ErrorContains(t, closeUnbounded(t, p), "1 connections")
	close(stuck.release)
	receive(t, asked)
	receive(t, p.server.clients.allClosed)
}

// stuckVerbs blocks in IsSleeping until release is closed.
type stuckVerbs struct {
	fakeVerbs
	called, release chan struct{}
}

func (s *stuckVerbs) IsSleeping() (bool, error) {
	close(s.called)
	<-s.release
	return false, nil
}
