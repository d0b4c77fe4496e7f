package spi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/dualpods/internal/requesters/requester"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T) *Client {
	t.Helper()
	c := New(nil)
	t.Cleanup(c.Close)
	return c
}

// start runs a requester and gives the address of its SPI.
func start(t *testing.T, visible string, changes ...func(*requester.Options)) string {
	t.Helper()
	opts := requester.Options{
		Host: "127.0.0.1", AcceleratorsFrom: "env", TerminationGrace: patience.Wait(), Log: &strings.Builder{}, Logger: slog.New(slog.DiscardHandler),
		Getenv: func(string) string { return visible },
	}
	for _, change := range changes {
		change(&opts)
	}
	r, err := requester.New(opts)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, r.Close())
		assert.NoError(t, <-ended)
	})
	return r.SPIAddr().String()
}

// target is an inference server that says nothing, and gives its port.
func target(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestARequesterThatTakesOrdersByTLSIsAskedByOneConnectionWithACertificate(t *testing.T) {
	ca, file := mtlstest.New(t, "ca"), filepath.Join(t.TempDir(), "ca.crt")
	mtlstest.WriteCAs(t, file, ca)
	address := "https://" + start(t, "GPU-a", func(o *requester.Options) { o.ClientCAFile = file })
	dialled := 0
	c := New(func(context.Context) (*tls.Config, error) {
		dialled++
		return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ca.Client(t, time.Hour)}}, nil
	})
	t.Cleanup(c.Close)
	for range 3 {
		uuids, err := c.Accelerators(t.Context(), address)
		require.NoError(t, err)
		assert.Equal(t, []string{"GPU-a"}, uuids)
	}
	assert.Equal(t, 1, dialled, "no call pays for a handshake that an earlier one has paid for")
	stranger := New(func(context.Context) (*tls.Config, error) { return &tls.Config{InsecureSkipVerify: true}, nil })
	t.Cleanup(stranger.Close)
	_, err := stranger.Accelerators(t.Context(), address)
	refused, ok := errors.AsType[*RefusedError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, requesterapi.CodeForbidden, refused.Problem.Code)
	plain := New(nil)
	t.Cleanup(plain.Close)
	_, err = plain.Accelerators(t.Context(), address)
	assert.ErrorContains(t, err, "certificate", "a client without TLS of its own is refused, and lives")
}

func TestARequesterIsBoundMadeReadyAndUnbound(t *testing.T) {
	c, address := newClient(t), start(t, "GPU-b,GPU-a")
	uuids, err := c.Accelerators(t.Context(), address)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"GPU-a", "GPU-b"}, uuids)
	proxy, err := c.Proxy(t.Context(), address)
	require.NoError(t, err, "that nobody is bound is an answer")
	assert.Equal(t, requesterapi.StateUnbound, proxy.State)

	config := requesterapi.ProxyConfig{Binding: "one", ServingPort: freePort(t), Address: "127.0.0.1", Port: target(t)}
	proxy, err = c.Bind(t.Context(), address, config)
	require.NoError(t, err)
	assert.Equal(t, requesterapi.StateBound, proxy.State)
	assert.Equal(t, config, proxy.ProxyConfig)
	require.NoError(t, c.BecomeReady(t.Context(), address, "one"))
	proxy, err = c.Proxy(t.Context(), address)
	require.NoError(t, err)
	assert.True(t, proxy.Ready)
	require.NoError(t, c.BecomeUnready(t.Context(), address, "one"))
	unbound, err := c.Unbind(t.Context(), address, "one", time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, requesterapi.Unbound{}, unbound)
	proxy, err = c.Proxy(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, requesterapi.StateUnbound, proxy.State)
	assert.False(t, proxy.Ready)
}

func TestRequesterHoldsUntilItsHoldIsEnded(t *testing.T) {
	c, address := newClient(t), start(t, "GPU-a")
	hold := requesterapi.Hold{Binding: "one", ServingPort: freePort(t)}
	proxy, err := c.Hold(t.Context(), address, hold)
	require.NoError(t, err)
	assert.True(t, proxy.CanHold)
	assert.Equal(t, "one", proxy.Holding)
	_, err = c.Unbind(t.Context(), address, "one", 0)
	require.NoError(t, err)
	proxy, err = c.Proxy(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, []string{requesterapi.StateUnbound, ""}, []string{proxy.State, proxy.Holding})
}

func TestARefusalComesBackAsItWas(t *testing.T) {
	c, address := newClient(t), start(t, "all")
	refusal := func(err error) *RefusedError {
		t.Helper()
		refused, ok := errors.AsType[*RefusedError](err)
		require.True(t, ok, "%v", err)
		return refused
	}
	_, err := c.Accelerators(t.Context(), address)
	assert.NotEmpty(t, refusal(err).Problem.Detail)
	assert.ErrorContains(t, err, address)
	err = c.BecomeReady(t.Context(), address, "one")
	assert.Equal(t, requesterapi.CodeUnbound, refusal(err).Problem.Code)
	config := requesterapi.ProxyConfig{Binding: "one", ServingPort: freePort(t), Address: "127.0.0.1", Port: target(t)}
	_, err = c.Bind(t.Context(), address, config)
	require.NoError(t, err)
	_, err = c.Unbind(t.Context(), address, "another", 0)
	assert.Equal(t, requesterapi.CodeOtherBinding, refusal(err).Problem.Code)
}

func TestAnAnswerThatIsNoneIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		says   string
	}{
		"an error of something else": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, "502 Bad Gateway"},
		"a page":                     {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "cannot read the answer"},
		"a list without end": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `["`)
			for range 3 * maxAnswer / 1024 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 1024)); err != nil {
					return
				}
			}
		}, "cannot read the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handle)
			defer server.Close()
			client := newClient(t)
			_, err := client.Accelerators(t.Context(), server.Listener.Addr().String())
			require.ErrorContains(t, err, c.says)
			client.Close()
		})
	}
}

func TestARequesterThatHangsIsWaitedForNoLongerThanTheCaller(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer hanging.Close()
	c, other := newClient(t), start(t, "GPU-a")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Proxy(ctx, hanging.Addr().String())
		ended <- err
	}()
	_, err = c.Accelerators(t.Context(), other)
	require.NoError(t, err, "another one is asked meanwhile")
	stop()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience.Wait()):
		require.Fail(t, "the call goes on")
	}
}

// TestACallOnAnIdleConnectionThatBreaksIsMadeAnew has the requester's side close a
// connection that is kept, when the next call comes on it.
func TestACallOnAnIdleConnectionThatBreaksIsMadeAnew(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 2 {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		}
	}))
	defer server.Close()
	c := newClient(t)
	for range 2 {
		require.NoError(t, c.BecomeReady(t.Context(), server.Listener.Addr().String(), "one"))
	}
	assert.EqualValues(t, 3, calls.Load())
	c.Close()
}

func TestARedirectIsARefusalAndIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the controller was sent to %s %s", r.Method, r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	c, address := newClient(t), strings.TrimPrefix(server.URL, "http://")
	_, accelerators := c.Accelerators(t.Context(), address)
	_, unbind := c.Unbind(t.Context(), address, "b", time.Second)
	for _, err := range []error{accelerators, unbind, c.BecomeReady(t.Context(), address, "b")} {
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, http.StatusTemporaryRedirect, refused.Problem.Status)
	}
}
