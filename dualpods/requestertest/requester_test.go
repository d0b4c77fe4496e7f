package requestertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/dualpods/internal/requesters/requester"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the requester program and gives the address of its SPI.
func start(t *testing.T) string {
	t.Helper()
	r, err := requester.New(requester.Options{
		Host: "127.0.0.1", AcceleratorsFrom: "env", TerminationGrace: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Getenv: func(string) string { return "GPU-b,GPU-a" },
	})
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

// scripted gives the address of a scripted requester.
func scripted(t *testing.T, became func(string, time.Time)) string {
	t.Helper()
	server := httptest.NewServer(New(Options{Instance: "process-1", GPUs: []string{"GPU-a", "GPU-b"}, BecameReady: became}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestTheScriptedRequesterAnswersAsTheRealOneDoes(t *testing.T) {
	c := spi.New(nil)
	t.Cleanup(c.Close)
	var became []string
	port := freePort(t)
	want := Script(t.Context(), c, start(t), port)
	got := Script(t.Context(), c, scripted(t, func(binding string, came time.Time) {
		assert.False(t, came.IsZero())
		became = append(became, binding)
	}), port)
	assert.Equal(t, want, got)
	assert.Equal(t, []string{"one", "one", "one"}, became)
	all := strings.Join(want, "\n")
	assert.NotContains(t, all, "no answer", "the script asks for nothing that cannot be had")
	assert.Contains(t, all, "become ready for nobody: refused: 409 unbound")
}

// TestTheAnswersOfTheScriptedRequesterLookAsThoseOfTheRealOne compares what a client
// sees that reads more than the bodies.
func TestTheAnswersOfTheScriptedRequesterLookAsThoseOfTheRealOne(t *testing.T) {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	port := freePort(t)
	look := func(address string) (seen []string) {
		for _, call := range []struct{ method, path, body string }{
			{"GET", requesterapi.PathAccelerators, ""},
			{"GET", requesterapi.PathProxyConfig, ""},
			{"POST", requesterapi.PathBecomeReady, ""},
			{"POST", requesterapi.PathBecomeUnready, ""},
			{"PUT", requesterapi.PathProxyConfig, "no object"},
			{"PUT", requesterapi.PathProxyConfig, fmt.Sprintf(`{"binding": "one", "serving_port": %d, "address": "127.0.0.1", "port": 1}`, port)},
			{"GET", requesterapi.PathProxyConfig, ""},
			{"POST", requesterapi.PathBecomeReady + "?binding=two", ""},
			{"POST", requesterapi.PathBecomeReady, ""},
			{"DELETE", requesterapi.PathProxyConfig + "?binding=one&drain_timeout=0s", ""},
			{"GET", "/nowhere", ""},
		} {
			request, err := http.NewRequestWithContext(t.Context(), call.method, "http://"+address+call.path, strings.NewReader(call.body))
			require.NoError(t, err)
			response, err := (&http.Client{Transport: transport}).Do(request)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			seen = append(seen, fmt.Sprintf("%s %s: %d, %s, process named: %t", call.method, call.path,
				response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get(requesterapi.InstanceHeader) != ""))
		}
		return seen
	}
	assert.Equal(t, look(start(t)), look(scripted(t, nil)))
}
