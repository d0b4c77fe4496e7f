package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// newSocket returns the path of a socket, in a folder whose path is short.
func newSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "http")
}

// serveOn serves a handler on a Unix socket, as an engine.
func serveOn(t *testing.T, socket string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience.Wait()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

func TestRequestsReachAnEngineOnASocket(t *testing.T) {
	socket := newSocket(t)
	p := openProxy(t, socket)
	client := newClient(t)
	requireError(t, get(t, client, p.url("/metrics")), http.StatusServiceUnavailable, "")
	serveOn(t, socket, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Host", r.Host)
		w.Header().Set("X-Client", r.Header.Get("X-Forwarded-For"))
		_, _ = io.Copy(w, r.Body)
	})
	got := post(t, client, p.url("/v1/completions"), "hello")
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, "hello", got.body)
	require.Equal(t, p.address(), got.header.Get("X-Host"), "the client's")
	require.Equal(t, "127.0.0.1", got.header.Get("X-Client"))
	for _, path := range []string{"/sleep", "/wake_up", "/collective_rpc", "/v1/../sleep", "/%73leep"} {
		require.Equal(t, http.StatusNotFound, post(t, client, p.url(path), "").status, path)
	}
}

func TestWebSocketsReachAnEngineOnASocket(t *testing.T) {
	socket := newSocket(t)
	serveOn(t, socket, upgrading)
	p := openProxy(t, socket)
	conn, response, reader := upgrade(t, p, "/v1/realtime", webSocket)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	_, err := io.WriteString(conn, "hello")
	require.NoError(t, err)
	requireNext(t, reader, "hello")
	require.NoError(t, conn.Close())
	eventually(t, func() bool { return p.InFlight() == 0 })
}

func TestPreflightWaitsForAnEngineOnASocket(t *testing.T) {
	socket := newSocket(t)
	p := newProxy(t, socket)
	require.True(t, p.mustWait(t.Context()), "there is no socket yet")
	serveOn(t, socket, echo)
	require.False(t, p.mustWait(t.Context()))
}

func TestManyClientsAtOnceReachAnEngineOnASocket(t *testing.T) {
	socket := newSocket(t)
	serveOn(t, socket, echo)
	p := openProxy(t, socket)
	client := newClient(t)
	var answers []<-chan answer
	for n := range 300 {
		answers = append(answers, goPost(t, client, p.url("/v1/completions"), strconv.Itoa(n)))
	}
	for n, a := range answers {
		got := receive(t, a)
		require.NoError(t, got.err)
		require.Equal(t, strconv.Itoa(n), got.body)
	}
}

// fillQueue makes a socket whose listener accepts nothing, and fills its queue.
func fillQueue(t *testing.T, socket string) {
	t.Helper()
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(listener) })
	require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: socket}))
	require.NoError(t, unix.Listen(listener, 0))
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(t.Context(), "unix", socket)
		if err != nil {
			require.ErrorIs(t, err, unix.EAGAIN)
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// labelled gives this goroutine a label, which each goroutine has that comes of it, as those of
// a proxy. It returns whether a goroutine with that label dials an engine.
func labelled(t *testing.T) (dialing func() bool) {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	t.Cleanup(func() { pprof.SetGoroutineLabels(context.Background()) })
	own := fmt.Appendf(nil, "%q:%q", "test", t.Name())
	return func() bool {
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			return false
		}
		for stack := range bytes.SplitSeq(stacks.Bytes(), []byte("\n\n")) {
			if bytes.Contains(stack, own) && bytes.Contains(stack, []byte("engine.Dial+")) {
				return true
			}
		}
		return false
	}
}

func TestGoroutinesOfOtherTestsAreNotTakenForOwnOnes(t *testing.T) {
	socket := newSocket(t)
	fillQueue(t, socket)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := engine.Dial(ctx, socket)
		ended <- err
	}()
	t.Run("a test beside", func(t *testing.T) {
		dialing := labelled(t)
		var stacks bytes.Buffer
		eventually(t, func() bool {
			stacks.Reset()
			return pprof.Lookup("goroutine").WriteTo(&stacks, 1) == nil && bytes.Contains(stacks.Bytes(), []byte("engine.Dial+"))
		})
		require.False(t, dialing())
	})
	leave()
	require.Error(t, <-ended)
}

func TestDialEndsWithItsRequest(t *testing.T) {
	dialing := labelled(t)
	for _, path := range []string{"/v1/completions", "/metrics"} {
		socket := newSocket(t)
		fillQueue(t, socket)
		p := openProxy(t, socket)
		ctx, leave := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url(path), http.NoBody)
		require.NoError(t, err)
		ended := make(chan error, 1)
		client := newClient(t)
		go func() {
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			ended <- err
		}()
		eventually(t, dialing)
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		eventually(t, func() bool { return !dialing() })
	}
}

func TestRefusedConnectionIsReported(t *testing.T) {
	socket := newSocket(t)
	reported := make(chan struct{}, 10)
	p := openProxy(t, socket, func(o *Options) { o.OnRefused = func() { reported <- struct{}{} } })
	client := newClient(t)
	requireError(t, post(t, client, p.url("/v1/completions"), "x"), http.StatusServiceUnavailable, "the engine does not listen")
	receive(t, reported)
	serveOn(t, socket, echo)
	require.Equal(t, http.StatusOK, post(t, client, p.url("/v1/completions"), "x").status)
	require.Empty(t, reported)
	require.NoError(t, os.Remove(socket))
	client.CloseIdleConnections()
	p.engine.CloseIdleConnections()
	requireError(t, get(t, client, p.url("/health")), http.StatusServiceUnavailable, "the engine does not listen")
	receive(t, reported)
}
