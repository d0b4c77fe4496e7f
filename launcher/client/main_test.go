package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/edges/api"
	"hotseat.dev/hotseat/launcher/internal/edges/api/apitest"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a launcher's control API on a port that stays the same while it is
// taken down and brought up again.
type host struct {
	addr      string
	logDir    string
	ready     launcherapi.Ready
	token     *api.TokenFile
	instances *apitest.Instances
	swaps     *apitest.Swaps
	door      api.FrontDoor // nil: there is none
	feed      *eventlog.Log
	logs      *outlog.Store

	server *api.Server
	ended  chan error
}

const ring = 8 // events that the feed keeps

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{addr: "127.0.0.1:0", logDir: t.TempDir(), ready: launcherapi.Ready{Status: launcherapi.ReadyStatus}, swaps: &apitest.Swaps{}}
	logs, err := outlog.Open(outlog.Options{Dir: h.logDir})
	require.NoError(t, err)
	h.logs = logs
	h.forget(0)
	h.up(t)
	t.Cleanup(func() {
		if h.server != nil {
			h.down(t)
		}
		require.NoError(t, logs.Close())
	})
	return h
}

// forget gives the launcher a new life, without instances and at a revision.
func (h *host) forget(revision uint64) {
	h.feed = eventlog.New(ring, revision)
	h.instances = apitest.NewInstances(h.feed, h.logs)
}

// up has the API listen.
func (h *host) up(t *testing.T) {
	t.Helper()
	opts := api.Options{
		Instances: h.instances, Swaps: h.swaps, PortLeases: &apitest.PortLeases{}, Events: h.feed, Logs: h.logs, Version: "test",
		FrontDoor:    h.door,
		Ready:        func() launcherapi.Ready { return h.ready },
		StalledSince: func() time.Time { return time.Time{} },
		Metrics:      http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "up 1") }),
		Logger:       slog.New(slog.DiscardHandler),
	}
	if h.token != nil {
		opts.Access = h.token
	}
	l, err := net.Listen("tcp", h.addr)
	require.NoError(t, err)
	h.addr = l.Addr().String()
	h.server, h.ended = api.New(opts), make(chan error, 1)
	server, ended := h.server, h.ended
	go func() { ended <- server.Serve(l) }()
}

// down takes the API down; whoever calls is cut off.
func (h *host) down(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = h.server.Shutdown(ctx) // calls that do not end in time are the test's
	require.NoError(t, <-h.ended)
	h.server = nil
}

// client speaks to the host.
func (h *host) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Server: h.addr, Heartbeat: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (h *host) writeLog(t *testing.T, id, text string) {
	t.Helper()
	name, ok := h.logs.Latest(id)
	require.True(t, ok)
	f, err := os.OpenFile(filepath.Join(h.logDir, name), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func spec(options string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{Options: &options}
}

// within is a context that ends when the test has waited for too long.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
	t.Cleanup(cancel)
	return ctx
}

// dropLog makes the log of an instance lose its first bytes.
func (h *host) dropLog(t *testing.T, id string, n int64) {
	t.Helper()
	name, ok := h.logs.Latest(id)
	require.True(t, ok)
	f, err := os.OpenFile(filepath.Join(h.logDir, name), os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n))
	require.NoError(t, f.Close())
}
