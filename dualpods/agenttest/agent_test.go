package agenttest

import (
	"context"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "system.agents.hotseat.dev"

// start runs an agent, and returns a function that asks it as the controller does.
func start(t *testing.T, limit *rate.Limiter, pods func() []podresourcesapi.Pod) (ask func() ([]podresourcesapi.Pod, error)) {
	t.Helper()
	dir, ca := t.TempDir(), mtlstest.New(t, "ca")
	cert, key := mtlstest.Write(t, dir, ca.Server(t, name))
	mtlstest.WriteCAs(t, filepath.Join(dir, "ca.crt"), ca)
	ctx, stop := context.WithCancel(context.Background())
	a, err := newAgent(ctx, Options{
		Listen: "127.0.0.1:0", Socket: filepath.Join(dir, "kubelet.sock"), Pods: pods, Logger: slog.New(slog.DiscardHandler),
		TLS: mtls.Server{CertFile: cert, KeyFile: key, ClientCAFile: filepath.Join(dir, "ca.crt")},
	}, limit)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	shown := ca.Client(t, time.Hour)
	client := allocations.New(func(_ context.Context, name string) (*tls.Config, error) {
		return &tls.Config{RootCAs: ca.Pool(), ServerName: name, Certificates: []tls.Certificate{shown}}, nil
	})
	t.Cleanup(client.Close)
	return func() ([]podresourcesapi.Pod, error) {
		return client.Pods(t.Context(), nodeview.Target{Address: a.Addr().String(), Access: nodeview.Access{Name: name}})
	}
}

// pod is one that has a GPU.
func pod(name, gpu string) podresourcesapi.Pod {
	return podresourcesapi.Pod{Namespace: "ns", Name: name, Containers: []podresourcesapi.Container{{
		Name: podmeta.ServingContainer, Devices: map[string][]string{string(podmeta.ResourceGPU): {gpu}},
	}}}
}

func TestAgentTellsWhatThePlayedKubeletGivesNow(t *testing.T) {
	var now atomic.Pointer[[]podresourcesapi.Pod]
	ask := start(t, rate.NewLimiter(rate.Inf, 0), func() []podresourcesapi.Pod { return *now.Load() })
	for _, given := range [][]podresourcesapi.Pod{{}, {pod("one", "GPU-a")}, {pod("one", "GPU-a"), pod("two", "GPU-b")}, {pod("two", "GPU-b")}} {
		now.Store(&given)
		told, err := ask()
		require.NoError(t, err)
		assert.Equal(t, given, told)
	}
	gpus, err := allocations.GPUs([]podresourcesapi.Pod{pod("two", "GPU-b")}, "ns", "two", podmeta.ServingContainer)
	require.NoError(t, err)
	assert.Equal(t, []string{"GPU-b"}, gpus)
}

func TestPlayedKubeletRefusesTooManyQuestions(t *testing.T) {
	ask := start(t, rate.NewLimiter(0, 1), func() []podresourcesapi.Pod { return nil })
	_, err := ask()
	require.NoError(t, err)
	_, err = ask()
	require.ErrorContains(t, err, "rejected by rate limit")
}
