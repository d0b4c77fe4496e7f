package gateway

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestListenNamesTheTakenPort(t *testing.T) {
	p := newProxy(t, "127.0.0.1:1")
	_, err := Listen(Options{Host: "127.0.0.1", Port: p.Port()})
	requirePortTaken(t, err, p.Port())
	_, err = Listen(Options{Host: "not an address", Port: 0})
	require.ErrorContains(t, err, "cannot listen on")
}

func TestClosedPortCanBeListenedOnAgain(t *testing.T) {
	engine := newEngine(t, echo)
	client := newClient(t)
	p := openProxy(t, engine.URL)
	port := p.Port()
	for range 20 {
		got := post(t, client, p.url("/v1/completions"), "x")
		require.NoError(t, got.err)
		require.Equal(t, "x", got.body)
		client.CloseIdleConnections()
		require.NoError(t, p.Close(patientContext(t)))
		require.NoError(t, p.Close(patientContext(t)), "a second close does nothing")
		p = openProxy(t, engine.URL, func(o *Options) { o.Port = port })
	}
}

func TestCloseFinishesAnswersAndRefusesHeldRequests(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	p := openProxy(t, engine.URL)
	p.grace = patience.Wait()
	client := newClient(t)
	streamed := s.open(t.Context(), t, client, p.url("/v1/completions"))
	p.Shut("a swap")
	held := goPost(t, client, p.url("/v1/completions"), "{}")
	eventually(t, func() bool { return p.Held() == 1 })
	idle := dialRaw(t, p.address()) // sends nothing, so Close must not wait for it

	closed := make(chan error, 1)
	go func() { closed <- p.Close(patientContext(t)) }()
	refused := receive(t, held)
	requireError(t, refused, http.StatusServiceUnavailable, "the public port is being closed: a swap")
	require.Equal(t, "5", refused.header.Get("Retry-After"), "the launcher may only be restarted")
	require.Equal(t, "failed", refused.header.Get(launcherapi.HeaderRefused))
	eventually(t, func() bool { // held requests are refused before the port is given back
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.address())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	s.parts <- "data: last\n\n"
	close(s.parts)
	rest, err := io.ReadAll(streamed.Body)
	require.NoError(t, err)
	require.Equal(t, "data: last\n\n", string(rest))
	require.NoError(t, receive(t, closed))
	_, err = idle.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestCloseCutsRequestsAtItsDeadline(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	streamed := s.open(t.Context(), t, client, p.url("/v1/completions"))
	scraped := make(chan answer, 1)
	r := request(t.Context(), t, http.MethodGet, p.url("/metrics"), nil)
	go func() { scraped <- do(client, r) }()
	receive(t, s.arrived)

	require.ErrorContains(t, p.Close(endedContext()), "cut 1 inference requests")
	_, err := io.ReadAll(streamed.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	got := receive(t, scraped)
	require.True(t, got.err != nil || got.status == http.StatusServiceUnavailable, got)
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
	require.Equal(t, OutcomeCut, seen.nth(t, 2).Outcome)
	receive(t, s.gone)
	receive(t, s.gone)
}

func TestCloseWaitsForReadOnlyAnswer(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	p := openProxy(t, engine.URL)
	p.grace = patience.Wait()
	client := newClient(t)
	r := request(t.Context(), t, http.MethodGet, p.url("/metrics"), nil)
	scraped := make(chan answer, 1)
	go func() { scraped <- do(client, r) }()
	receive(t, s.arrived)
	closed := make(chan error, 1)
	go func() { closed <- p.Close(patientContext(t)) }()
	eventually(t, func() bool {
		p.server.clients.mu.Lock()
		defer p.server.clients.mu.Unlock()
		return p.server.clients.finishing
	})
	s.parts <- "vllm:num_requests_running 0"
	close(s.parts)
	require.Equal(t, "vllm:num_requests_running 0", receive(t, scraped).body)
	require.NoError(t, receive(t, closed))
}

func TestCloseReportsBrokenReadOnlyRequest(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	p := openProxy(t, engine.URL)
	client := newClient(t)
	r := request(t.Context(), t, http.MethodGet, p.url("/metrics"), nil)
	scraped := make(chan answer, 1)
	go func() { scraped <- do(client, r) }()
	receive(t, s.arrived)
	require.ErrorContains(t, p.Close(endedContext()), "cut 0 inference requests and closed 1 connections")
	receive(t, scraped)
	receive(t, s.gone)
}

func TestClosedProxiesLeakNoDescriptors(t *testing.T) {
	engine := newEngine(t, upgrading)
	client := newClient(t)
	before := descriptors(t)
	for range 100 {
		p := openProxy(t, engine.URL)
		p.engine.IdleConnTimeout = 0 // so that nothing but Close ends them
		require.Equal(t, http.StatusOK, post(t, client, p.url("/v1/completions"), "x").status)
		conn, _, reader := upgrade(t, p, "/v1/realtime", webSocket)
		left := make(chan error, 1)
		go func() {
			_, _ = io.Copy(io.Discard, reader) // until the proxy closes its side
			left <- conn.Close()
		}()
		require.Error(t, p.Close(endedContext()), "the upgraded connection was cut")
		require.NoError(t, receive(t, left))
	}
	client.CloseIdleConnections()
	eventually(t, func() bool { return descriptors(t) <= before })
}

func TestProxyListensOnGivenHostAndPort(t *testing.T) {
	engine := newEngine(t, echo)
	first := openProxy(t, engine.URL)
	port := first.Port()
	require.NoError(t, first.Close(patientContext(t)))
	p := openProxy(t, engine.URL, func(o *Options) { o.Port = port; o.Host = "127.0.0.2" })
	require.Equal(t, port, p.Port())
	got := post(t, newClient(t), "http://127.0.0.2:"+strconv.Itoa(port)+"/v1/completions", "x")
	require.Equal(t, "x", got.body)
}
