package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// quiet throws away what the server logs.
func quiet(o *api.Options) { o.Logger = slog.New(slog.DiscardHandler) }

// serve has the rig's API listen by itself too, at the address that is given
// back. The channel gets what Serve came to.
func (r *rig) serve(t *testing.T) (string, <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.api.Serve(l) }()
	return l.Addr().String(), ended
}

func TestAServerServesAndShutsDown(t *testing.T) {
	r := newRig(t)
	addr, ended := r.serve(t)
	resp, err := r.client.Get("http://" + addr + "/health")
	require.NoError(t, err)
	_, _ = io.ReadAll(resp.Body)
	require.NoError(t, resp.Body.Close())
	require.NoError(t, r.api.Shutdown(context.Background()))
	require.NoError(t, <-ended)
	_, err = net.Dial("tcp", addr)
	require.Error(t, err)
}

func TestAShutdownDoesNotHangOnWatchers(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	addr, ended := r.serve(t)
	var bodies []io.ReadCloser
	for _, path := range []string{watchPath, watchPath + "?heartbeat=1h", logPath + "?follow=true"} {
		resp, err := r.client.Get("http://" + addr + path)
		require.NoError(t, err)
		bodies = append(bodies, resp.Body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
	defer cancel()
	require.NoError(t, r.api.Shutdown(ctx))
	require.NoError(t, <-ended)
	for _, body := range bodies {
		_, _ = io.ReadAll(body)
		require.NoError(t, body.Close())
	}
}

func TestAShutdownDoesNotWaitForAReaderThatTakesNothing(t *testing.T) {
	r := newRig(t)
	addr, ended := r.serve(t)
	r.stall(t, addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
	defer cancel()
	require.NoError(t, r.api.Shutdown(ctx))
	require.NoError(t, <-ended)
}

func TestAShutdownWaitsForCallsAndThenCancelsThem(t *testing.T) {
	r := newRig(t)
	r.create(t, "a")
	addr, ended := r.serve(t)
	r.instances.Hold(make(chan struct{}))
	type outcome struct {
		status int
		body   string
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		resp, err := r.client.Post("http://"+addr+instancesPath+"/a/sleep", "application/json", nil)
		if err != nil {
			answered <- outcome{err: err}
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answered <- outcome{resp.StatusCode, string(body), err}
	}()
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(r.instances.Record()), "sleep") }, patience.Wait(), time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorContains(t, r.api.Shutdown(ctx), "cannot wait for all calls")
	require.NoError(t, <-ended)
	got := <-answered
	require.NoError(t, got.err)
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Equal(t, launcherapi.CodeUnavailable, decode[launcherapi.Problem](t, got.body).Code)
}

func TestACallMayTakeLongerThanItsBodyMayTakeToCome(t *testing.T) {
	// The deadline for reading the body must not end the call's context later.
	r := newRig(t)
	r.create(t, "a")
	addr, _ := r.serve(t)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	hold := make(chan struct{})
	r.instances.Hold(hold)
	_, err = io.WriteString(conn, "POST "+instancesPath+"/a/sleep HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(r.instances.Record()), "sleep") }, patience.Wait(), time.Millisecond)
	close(hold)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	r := newRig(t)
	addr, _ := r.serve(t)
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/health", nil)
	require.NoError(t, err)
	req.Header.Set("X-Long", strings.Repeat("x", 200<<10))
	resp, err := r.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}
