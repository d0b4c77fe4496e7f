package gateway

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDrainBreaksOffStreamsAtItsDeadline(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)
	streamed := s.open(t.Context(), t, client, p.url("/v1/completions"))
	silent := goPost(t, client, p.url("/v1/completions"), "{}")
	receive(t, s.arrived)
	require.Equal(t, 2, p.InFlight())
	p.Shut("a swap to b")
	cut, err := p.Drain(endedContext())
	require.NoError(t, err)
	require.Equal(t, 2, cut)
	require.Zero(t, p.InFlight())
	_, err = io.ReadAll(streamed.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	got := receive(t, silent)
	requireError(t, got, http.StatusServiceUnavailable, "cut the request: a swap to b")
	require.Equal(t, "5", got.header.Get("Retry-After"))
	receive(t, s.gone)
	receive(t, s.gone)
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
	require.Equal(t, OutcomeCut, seen.nth(t, 2).Outcome)
	go func() { s.parts <- "whole"; close(s.parts) }()
	p.Open()
	require.Equal(t, "whole", post(t, client, p.url("/v1/completions"), "{}").body, "and the next request is served")
}

func TestDrainWaitsForStreamToEnd(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	p := openProxy(t, engine.URL)
	streamed := s.open(t.Context(), t, newClient(t), p.url("/v1/completions"))
	p.Shut("a swap")
	drained := make(chan int, 1)
	go func() {
		cut, _ := p.Drain(patientContext(t))
		drained <- cut
	}()
	s.parts <- "data: last\n\n"
	require.Empty(t, drained)
	close(s.parts)
	rest, err := io.ReadAll(streamed.Body)
	require.NoError(t, err)
	require.Equal(t, "data: last\n\n", string(rest))
	require.Zero(t, receive(t, drained))
}

func TestDrainCutsAnswerThatNobodyReads(t *testing.T) {
	full := make(chan struct{})
	address := newRawEngine(t, func(conn net.Conn, _ *http.Request) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
		for block := make([]byte, 1<<20); ; {
			_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if n, err := conn.Write(block); err != nil && n == 0 {
				break // every buffer on the way is full
			}
		}
		close(full)
		_, _ = io.Copy(io.Discard, conn)
	})
	p := openProxy(t, address)
	conn := dialRaw(t, p.address())
	_, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	receive(t, full)
	p.Shut("a swap")
	cut, err := p.Drain(endedContext())
	require.NoError(t, err)
	require.Equal(t, 1, cut)
}

func TestDrainCutsRequestWithStalledBody(t *testing.T) {
	arrived := make(chan struct{})
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	p := openProxy(t, engine.URL)
	conn := dialRaw(t, p.address())
	_, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	receive(t, arrived)
	p.Shut("a swap")
	cut, err := p.Drain(endedContext())
	require.NoError(t, err)
	require.Equal(t, 1, cut)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(all), "HTTP/1.1 503 Service Unavailable")
	require.Contains(t, string(all), "Connection: close")
}

// callAtEnd is a transport that calls a function at the end of an answer's body.
type callAtEnd struct {
	http.RoundTripper

	call func()
}

func (l callAtEnd) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &endingBody{response.Body, l.call}
	}
	return response, err
}

type endingBody struct {
	io.ReadCloser

	call func()
}

func (b *endingBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err != nil {
		b.call()
	}
	return n, err
}

func TestAnswerCutAtItsEndIsBrokenOff(t *testing.T) {
	engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "whole")
	})
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	p.reverse.Transport = callAtEnd{p.engine, func() { p.gate.cutAll() }}
	got := post(t, newClient(t), p.url("/v1/completions"), "{}")
	require.ErrorIs(t, got.err, io.ErrUnexpectedEOF, "its connection has a deadline and must not be used again")
	require.Equal(t, OutcomeCut, seen.nth(t, 1).Outcome)
}
