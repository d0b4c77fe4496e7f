package api_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// sends connects, and sends the beginning of a request.
func sends(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, _ = io.WriteString(conn, text) // the server may have closed it
	return conn
}

// awaitClosed waits until the server has closed n connections.
func awaitClosed(t *testing.T, conns []net.Conn, n int) {
	t.Helper()
	closed := make(chan struct{}, len(conns))
	for _, conn := range conns {
		go func() {
			if _, err := io.Copy(io.Discard, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
				closed <- struct{}{}
			}
		}()
	}
	for m := range n {
		select {
		case <-closed:
		case <-time.After(patience.Wait()):
			require.FailNow(t, "connections stay open", "%d of %d were closed", m, n)
		}
	}
}

func TestConnectionsWithoutAWholeRequestAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"idle":          "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"silent":        "",
		"half a header": "GET /health HTTP/1.1\r\nHost: loc",
		"half a body":   "PUT /v2/vllm/instances/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			const most = 4
			limit := connlimit.New(most)
			r := newRig(t, quiet, func(o *api.Options) { o.Connections = limit })
			addr, _ := r.serve(t)
			var conns []net.Conn
			for range 3 * most {
				conns = append(conns, sends(t, addr, text))
			}
			awaitClosed(t, conns, 2*most)
			require.Eventually(t, func() bool {
				open, idle := limit.Counts()
				return open == most && idle == most
			}, patience.Wait(), time.Millisecond, "none of them carries a whole request")
			resp, err := r.client.Get("http://" + addr + "/health")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
}

func TestStreamsBeyondTheBoundAreRefused(t *testing.T) {
	streams := []string{watchPath, logPath + "?follow=true", "/v2/models/watch"}
	r := newRig(t, func(o *api.Options) { o.MaxStreams = len(streams) })
	r.create(t, "a")
	var last watching
	for _, path := range streams {
		last = r.follow(t, path)
	}
	for _, path := range streams {
		got := r.do(t, http.MethodGet, path, "")
		problem := got.problem(t)
		require.Equal(t, http.StatusTooManyRequests, got.status)
		require.Equal(t, launcherapi.CodeTooMany, problem.Code)
		require.Equal(t, "3 watches, followed logs and followed swaps are open, and no more are allowed; end some, or try again later", problem.Detail)
		require.Equal(t, "5", got.header.Get("Retry-After"))
	}
	require.Equal(t, http.StatusOK, r.do(t, http.MethodGet, "/health", "").status)
	last.cancel()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		resp := r.open(t, ctx, http.MethodGet, watchPath, "")
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, patience.Wait(), 10*time.Millisecond)
}
