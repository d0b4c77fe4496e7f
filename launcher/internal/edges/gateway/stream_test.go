package gateway

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func portOf(r *Reservation) string { return strconv.Itoa(r.Port()) }

// streaming is an engine that writes and flushes each value of parts, until parts is
// closed. It sends on arrived at each request, and on gone when a client has left.
type streaming struct {
	parts   chan string
	arrived chan struct{}
	gone    chan struct{}
}

func newStreaming() *streaming {
	return &streaming{parts: make(chan string), arrived: make(chan struct{}, 100), gone: make(chan struct{}, 100)}
}

func (s *streaming) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.Copy(io.Discard, r.Body)
	s.arrived <- struct{}{}
	for {
		select {
		case part, more := <-s.parts:
			if !more {
				return
			}
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			s.gone <- struct{}{}
			return
		}
	}
}

// open starts a streamed answer and reads its first part.
func (s *streaming) open(ctx context.Context, t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	type result struct {
		response *http.Response
		err      error
	}
	opened := make(chan result, 1)
	r := request(ctx, t, http.MethodPost, url, strings.NewReader(`{"stream":true}`))
	go func() {
		response, err := client.Do(r)
		opened <- result{response, err}
	}()
	receive(t, s.arrived)
	s.parts <- "data: first\n\n"
	got := receive(t, opened)
	require.NoError(t, got.err)
	t.Cleanup(func() { _ = got.response.Body.Close() })
	requireNext(t, got.response.Body, "data: first\n\n")
	return got.response
}

func requireNext(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_, err := io.ReadFull(r, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestEachPartOfStreamIsForwardedAtOnce(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	p := openProxy(t, engine.URL)
	response := s.open(t.Context(), t, newClient(t), p.url("/v1/chat/completions"))
	for _, part := range []string{"data: second\n\n", "d", "ata: third\n\n"} {
		s.parts <- part // the test sends the next part only after this one was read
		requireNext(t, response.Body, part)
	}
	require.Equal(t, 1, p.InFlight())
	close(s.parts)
	rest, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	eventually(t, func() bool { return p.InFlight() == 0 })
}

func TestTrailersAndHeadersAreForwarded(t *testing.T) {
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Tokens")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Tokens", "7")
	})
	p := openProxy(t, engine.URL)
	r := request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), nil)
	r.Header.Set("X-Request-Id", "r1")
	response, err := newClient(t).Do(r)
	require.NoError(t, err)
	_, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	require.Equal(t, "r1", response.Header.Get("X-Request-Id"))
	require.Equal(t, "7", response.Trailer.Get("X-Tokens"))
}

func TestEngineReceivesRequestAsSent(t *testing.T) {
	got := make(chan *http.Request, 1)
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
	p := openProxy(t, engine.URL)
	r := request(t.Context(), t, http.MethodGet, p.url("/v1/models?a=1;b=%zz&&c"), nil)
	r.Host = "models.example"
	r.Header.Set("X-Forwarded-For", "1.2.3.4")
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("Connection", "keep-alive, X-Private")
	r.Header.Set("X-Private", "for the next hop only")
	require.Equal(t, http.StatusOK, do(newClient(t), r).status)
	seen := receive(t, got)
	require.Equal(t, "/v1/models?a=1;b=%zz&&c", seen.RequestURI)
	require.Equal(t, "models.example", seen.Host)
	require.Equal(t, "127.0.0.1", seen.Header.Get("X-Forwarded-For"), "a client's word about itself is not passed on")
	require.Equal(t, "models.example", seen.Header.Get("X-Forwarded-Host"))
	require.Equal(t, "http", seen.Header.Get("X-Forwarded-Proto"))
	require.Equal(t, "Bearer key", seen.Header.Get("Authorization"))
	require.Empty(t, seen.Header.Get("X-Private"))
}

func TestLargeBodyIsStreamedToTheEngine(t *testing.T) {
	const megabytes = 64
	began := make(chan struct{})
	engine := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		_, _ = io.CopyN(sum, r.Body, 1)
		close(began)
		n, _ := io.Copy(sum, r.Body)
		_, _ = io.WriteString(w, strconv.FormatInt(n+1, 10)+" "+hex.EncodeToString(sum.Sum(nil)))
	})
	p := openProxy(t, engine.URL)
	body, write := io.Pipe()
	answers := make(chan answer, 1)
	client := newClient(t)
	r := request(t.Context(), t, http.MethodPost, p.url("/v1/audio/transcriptions"), body)
	go func() { answers <- do(client, r) }()
	sum, block := sha256.New(), []byte(strings.Repeat("a block of it ", 1<<20/14))
	for n := range megabytes {
		_, err := write.Write(block)
		require.NoError(t, err)
		sum.Write(block)
		if n == 0 {
			receive(t, began) // the engine reads while the client still sends
		}
	}
	require.NoError(t, write.Close())
	got := receive(t, answers)
	require.NoError(t, got.err)
	require.Equal(t, strconv.Itoa(megabytes*len(block))+" "+hex.EncodeToString(sum.Sum(nil)), got.body)
}

// reads gives these errors in turn, with no data.
type readErrors []error

func (r *readErrors) Read([]byte) (int, error) {
	err := (*r)[0]
	*r = (*r)[1:]
	return 0, err
}

func TestBodyClosedByTheServerIsNotTheClientsFailure(t *testing.T) {
	var failed atomic.Bool
	done := make(chan struct{})
	body := func(errs ...error) *upload {
		r := readErrors(errs)
		return &upload{ReadCloser: io.NopCloser(&r), done: done, failed: &failed}
	}
	ended := body(io.EOF)
	for range 2 {
		_, err := ended.Read(nil)
		require.ErrorIs(t, err, io.EOF, "a body that has ended stays ended")
	}
	late := make(chan error, 1)
	go func() {
		_, err := body(http.ErrBodyReadAfterClose).Read(nil)
		late <- err
	}()
	close(done)
	require.ErrorIs(t, receive(t, late), http.ErrBodyReadAfterClose)
	require.False(t, failed.Load())
	_, err := body(io.ErrUnexpectedEOF).Read(nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, failed.Load())
}

func TestAnswerBegunDuringUploadArrivesWhole(t *testing.T) {
	answering, uploaded := make(chan struct{}), make(chan struct{})
	address := newRawEngine(t, func(conn net.Conn, _ *http.Request) {
		_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 6\r\n\r\nno ")
		answering <- struct{}{}
		<-uploaded
		_, _ = io.WriteString(conn, "key")
		_, _ = io.Copy(io.Discard, conn) // until the proxy gives the connection up
	})
	p := openProxy(t, address)
	client := newClient(t)
	for range 20 {
		body, write := io.Pipe()
		answers := make(chan answer, 1)
		r := request(t.Context(), t, http.MethodPost, p.url("/v1/audio/transcriptions"), body)
		go func() { answers <- do(client, r) }()
		_, err := write.Write(make([]byte, 4096))
		require.NoError(t, err)
		receive(t, answering)
		_, err = write.Write(make([]byte, 4096))
		require.NoError(t, err)
		require.NoError(t, write.Close())
		uploaded <- struct{}{}
		got := receive(t, answers)
		require.NoError(t, got.err)
		require.Equal(t, http.StatusUnauthorized, got.status)
		require.Equal(t, "no key", got.body)
	}
}

func TestLeavingClientCancelsTheEnginesWork(t *testing.T) {
	s := newStreaming()
	engine := newEngine(t, s.serve)
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)

	ctx, leave := context.WithCancel(t.Context())
	s.open(ctx, t, client, p.url("/v1/completions"))
	leave()
	receive(t, s.gone)
	require.Equal(t, OutcomeClientGone, seen.nth(t, 1).Outcome)

	ctx, leave = context.WithCancel(t.Context())
	left := make(chan answer, 1)
	go func() {
		left <- do(client, request(ctx, t, http.MethodPost, p.url("/v1/completions"), strings.NewReader("{}")))
	}()
	receive(t, s.arrived)
	leave()
	receive(t, left)
	receive(t, s.gone)
	o := seen.nth(t, 2)
	require.Equal(t, OutcomeClientGone, o.Outcome)
	require.Equal(t, statusClientGone, o.Status)
	require.Zero(t, p.InFlight())
}

func TestBrokenUploadIsTheClientsFailure(t *testing.T) {
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	seen := &observer{}
	p := openProxy(t, engine.URL, func(o *Options) { o.Observe = seen.observe })
	got := sendRaw(t, p.address(), "POST /v1/completions HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "", "not a chunk size")
	require.Contains(t, got, "HTTP/1.1 400 Bad Request")
	require.Equal(t, OutcomeClientGone, seen.nth(t, 1).Outcome)
}

func TestPartOfSizedAnswerIsForwardedAtOnce(t *testing.T) {
	read := make(chan struct{})
	engine := newEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "6")
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "two")
	})
	p := openProxy(t, engine.URL)
	response, err := newClient(t).Do(request(t.Context(), t, http.MethodPost, p.url("/v1/completions"), nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	requireNext(t, response.Body, "one")
	close(read)
	requireNext(t, response.Body, "two")
}

// newRawEngine is an engine that serves one request on each connection, without
// net/http's server.
func newRawEngine(t *testing.T, serve func(net.Conn, *http.Request)) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					serve(conn, r)
				}
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		running.Wait()
	})
	return listener.Addr().String()
}

func TestEngineBreakingOffGives502OrBrokenStream(t *testing.T) {
	answers := make(chan string, 2)
	address := newRawEngine(t, func(conn net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, <-answers)
	})
	seen := &observer{}
	p := openProxy(t, address, func(o *Options) { o.Observe = seen.observe })
	client := newClient(t)

	answers <- ""
	requireError(t, post(t, client, p.url("/v1/completions"), "{}"), http.StatusBadGateway, "failed to answer")
	require.Equal(t, OutcomeEngineFailed, seen.nth(t, 1).Outcome)
	answers <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	got := post(t, client, p.url("/v1/completions"), "{}")
	require.ErrorIs(t, got.err, io.ErrUnexpectedEOF)
	require.Equal(t, "hello", got.body)
	o := seen.nth(t, 2)
	require.Equal(t, OutcomeEngineFailed, o.Outcome)
	require.Equal(t, http.StatusOK, o.Status)
}

func TestIdleConnectionsCloseBeforeTheEngineClosesThem(t *testing.T) {
	addresses := make(chan string, 100)
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) { addresses <- r.RemoteAddr })
	p := openProxy(t, engine.URL)
	client := newClient(t)
	seen := map[string]bool{}
	for range 20 {
		require.Equal(t, http.StatusOK, post(t, client, p.url("/v1/completions"), "{}").status)
		seen[receive(t, addresses)] = true
	}
	require.Less(t, len(seen), 20)
	for keeps, closes := range map[time.Duration]time.Duration{
		0:               4 * time.Second, // vLLM's own is 5 s
		time.Minute:     59 * time.Second,
		2 * time.Second: time.Second,
		time.Second:     500 * time.Millisecond,
	} {
		require.Equal(t, closes, newTransport("", keeps).IdleConnTimeout, keeps)
	}
	require.Positive(t, p.engine.IdleConnTimeout)
}

func TestNoConnectionIsKeptToAnEngineThatKeepsNone(t *testing.T) {
	addresses := make(chan string, 2)
	engine := newEngine(t, func(_ http.ResponseWriter, r *http.Request) { addresses <- r.RemoteAddr })
	p := openProxy(t, engine.URL, func(o *Options) { o.KeepAlive = -1 })
	client := newClient(t)
	for range 2 {
		require.Equal(t, http.StatusOK, post(t, client, p.url("/v1/completions"), "{}").status)
	}
	require.NotEqual(t, receive(t, addresses), receive(t, addresses))
}
