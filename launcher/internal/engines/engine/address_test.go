package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// socketFolderOf makes a folder whose path is short, as that of a socket must be.
func socketFolderOf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// onSocket has a fake vLLM listen on a Unix socket too, and returns the socket's path.
func (f *fakeVLLM) onSocket(t *testing.T) string {
	t.Helper()
	path := filepath.Join(socketFolderOf(t), "http")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: f, ReadHeaderTimeout: patience.Wait()}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return path
}

func TestEveryCallReachesAnEngineOnASocket(t *testing.T) {
	f, v := newFakeVLLM(t), newAdapter(t)
	base := SocketBase(f.onSocket(t))
	require.NoError(t, v.Ready(t.Context(), base))
	require.NoError(t, v.Sleep(t.Context(), base, 2, true))
	asleep, err := v.IsSleeping(t.Context(), base)
	require.NoError(t, err)
	assert.True(t, asleep)
	require.NoError(t, v.Wake(t.Context(), base, 2, true))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		assert.Equal(t, "localhost", r.Host)
	}
}

func TestEnginesOnTwoSocketsAreNotConfused(t *testing.T) {
	a, b, v := newFakeVLLM(t), newFakeVLLM(t), newAdapter(t)
	first, second := SocketBase(a.onSocket(t)), SocketBase(b.onSocket(t))
	require.NoError(t, v.Sleep(t.Context(), first, 1, true))
	asleep, err := v.IsSleeping(t.Context(), second)
	require.NoError(t, err)
	assert.False(t, asleep)
}

func TestRefusedKnowsSocketsAtWhichNobodyListens(t *testing.T) {
	v, dir := newAdapter(t), socketFolderOf(t)
	for what, path := range map[string]string{"no folder": filepath.Join(dir, "none", "http"), "no socket": filepath.Join(dir, "http")} {
		err := v.Ready(t.Context(), SocketBase(path))
		require.Error(t, err)
		assert.True(t, Refused(err), "%s: %v", what, err)
		assert.NotContains(t, err.Error(), socketHost, "people cannot read that")
		assert.Contains(t, err.Error(), "GET /health: dial unix "+path)
	}
	bound := filepath.Join(dir, "bound")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: bound}))
	err = v.Ready(t.Context(), SocketBase(bound))
	assert.True(t, Refused(err), "as vLLM while it loads a model: %v", err)
}

func TestDialWaitsWhileTheQueueOfASocketIsFull(t *testing.T) {
	path := filepath.Join(socketFolderOf(t), "http")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(fd, 0)) // one connection may wait
	first, err := Dial(t.Context(), path)
	require.NoError(t, err)
	defer first.Close()

	for short := 20 * time.Millisecond; ; short *= 2 { // the time may be over before it has tried, or while it does
		require.Less(t, short, patience.Wait(), "it never tried")
		ctx, stop := context.WithTimeout(t.Context(), short)
		_, err = Dial(ctx, path)
		over := ctx.Err()
		stop()
		if errors.Is(err, syscall.EAGAIN) {
			require.ErrorIs(t, over, context.DeadlineExceeded, "it tries until the context ends")
			break
		}
		timeout, is := errors.AsType[net.Error](err)
		require.True(t, is && timeout.Timeout(), "%v", err)
	}

	second := make(chan error, 1)
	go func() {
		conn, err := Dial(t.Context(), path)
		if err == nil {
			err = conn.Close()
		}
		second <- err
	}()
	accepted, _, err := unix.Accept(fd)
	require.NoError(t, err)
	defer func() { _ = unix.Close(accepted) }()
	select {
	case err := <-second:
		require.NoError(t, err)
	case <-time.After(patience.Wait()):
		t.Fatal("the second connection was not made")
	}
}

func TestSocketIsReachedInAFolderThatWasRenamedToALongPath(t *testing.T) {
	dir := socketFolderOf(t)
	made := filepath.Join(dir, "short")
	require.NoError(t, os.Mkdir(made, 0o700))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(made, "http"))
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // that path is gone
	defer listener.Close()
	long := filepath.Join(dir, strings.Repeat("x", 150))
	require.NoError(t, os.Rename(made, long))
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.WriteString(conn, "here")
			_ = conn.Close()
		}
	}()
	conn, err := Dial(t.Context(), filepath.Join(long, "http"))
	require.NoError(t, err)
	defer conn.Close()
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "here", string(said))
	_, err = Dial(t.Context(), filepath.Join(long, "none", "http"))
	assert.True(t, Refused(err), "%v", err)
}

func TestAPlanListensWhereItIsTold(t *testing.T) {
	v := NewVLLM(VLLMOptions{})
	p, err := v.Plan(Request{Args: []string{"org/model", "--port", "8000", "--seed", "1"}})
	require.NoError(t, err)
	assert.Equal(t, []string{"serve", "org/model", "--uds", "/run/a/http", "--seed", "1"}, p.SocketArgv("/run/a/http"))
	assert.Contains(t, p.SocketEnv("/s"), "FORWARDED_ALLOW_IPS=*")
	assert.NotContains(t, p.Env(), "FORWARDED_ALLOW_IPS=*")
	own, err := v.Plan(Request{Args: []string{"m"}, Env: map[string]string{"FORWARDED_ALLOW_IPS": "10.0.0.1"}})
	require.NoError(t, err)
	assert.Equal(t, own.Env(), own.SocketEnv("/s"))
}

func TestAPlanKnowsHowLongItsEngineKeepsIdleConnections(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 5 * time.Second, "1": time.Second, "60": time.Minute, "0": -1, "-3": -1, "x": 5 * time.Second} {
		r := Request{Args: []string{"m"}, Env: map[string]string{"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": value}}
		p, err := NewVLLM(VLLMOptions{}).Plan(r)
		require.NoError(t, err)
		assert.Equal(t, want, p.KeepAlive, "%q", value)
	}
}
