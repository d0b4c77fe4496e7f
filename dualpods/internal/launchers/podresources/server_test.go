package podresources_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/launchers/podresources"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/mtls/mtlstest"
	"hotseat.dev/hotseat/spec/podresourcesapi"
	"hotseat.dev/hotseat/test/patience"
)

const (
	token = "sesame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a kubelet's PodResources API on a real socket, and the program beside it.
type node struct {
	kubelet.UnimplementedPodResourcesListerServer
	t       *testing.T
	socket  string
	token   string // its file
	address string
	pods    []*kubelet.PodResources
	hangs   atomic.Bool
}

func (n *node) List(ctx context.Context, _ *kubelet.ListPodResourcesRequest) (*kubelet.ListPodResourcesResponse, error) {
	if n.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &kubelet.ListPodResourcesResponse{PodResources: n.pods}, nil
}

// startKubelet gives a kubelet that answers, and its end.
func (n *node) startKubelet() (stop func()) {
	n.t.Helper()
	listener, err := new(net.ListenConfig).Listen(n.t.Context(), "unix", n.socket)
	require.NoError(n.t, err)
	server := grpc.NewServer()
	kubelet.RegisterPodResourcesListerServer(server, n)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		assert.NoError(n.t, <-served)
	}
}

// newNode starts the program, and no kubelet.
func newNode(t *testing.T, changes ...func(*podresources.Options)) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{t: t, socket: filepath.Join(dir, "kubelet.sock"), token: filepath.Join(dir, "token")}
	require.NoError(t, os.WriteFile(n.token, []byte(token+"\n"), 0o600))
	ctx, stop := context.WithCancel(context.Background())
	opts := podresources.Options{Listen: "127.0.0.1:0", Socket: n.socket, TokenFile: n.token, Logger: slog.New(slog.DiscardHandler)}
	for _, change := range changes {
		change(&opts)
	}
	s, err := podresources.New(ctx, opts)
	require.NoError(t, err)
	n.address = s.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return n
}

// get asks the program by hand.
func (n *node) get(authorization string) (status int, body []byte) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "http://"+n.address+podresourcesapi.Path, nil)
	require.NoError(n.t, err)
	req.Header.Set("Authorization", authorization)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(n.t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	require.NoError(n.t, err)
	return resp.StatusCode, body
}

func pod(namespace, name string, devices ...*kubelet.ContainerDevices) *kubelet.PodResources {
	return &kubelet.PodResources{Namespace: namespace, Name: name, Containers: []*kubelet.ContainerResources{
		{Name: "sidecar"}, {Name: "inference-server", Devices: devices},
	}}
}

func gpus(ids ...string) *kubelet.ContainerDevices {
	return &kubelet.ContainerDevices{ResourceName: "nvidia.com/gpu", DeviceIds: ids}
}

func TestDevicesOfAllPodsArePassedOnAsTheKubeletTellsThem(t *testing.T) {
	n := newNode(t)
	n.pods = []*kubelet.PodResources{
		pod("ours", "one", gpus("GPU-a")), pod("theirs", "one", gpus("GPU-x")),
		// A resource is told once for each place that its devices are near to.
		pod("ours", "two", gpus("GPU-b"), gpus("GPU-c::1"), &kubelet.ContainerDevices{ResourceName: "rdma/hca", DeviceIds: []string{"mlx5_0"}}),
		pod("ours", "none"), pod("ours", "empty", gpus()),
	}
	t.Cleanup(n.startKubelet())
	c := allocations.New(nil)
	t.Cleanup(c.Close)
	pods, err := c.Pods(t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Token: token}})
	require.NoError(t, err)
	assert.Equal(t, []podresourcesapi.Pod{
		{Namespace: "ours", Name: "one", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-a"}}}}},
		{Namespace: "theirs", Name: "one", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-x"}}}}},
		{Namespace: "ours", Name: "two", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{
			"nvidia.com/gpu": {"GPU-b", "GPU-c::1"}, "rdma/hca": {"mlx5_0"},
		}}}},
	}, pods)
}

func TestWhoDoesNotKnowTheTokenIsToldNothing(t *testing.T) {
	n := newNode(t)
	n.pods = []*kubelet.PodResources{pod("ns", "secret", gpus("GPU-a"))}
	t.Cleanup(n.startKubelet())
	for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer sesam", "Bearer sesamee", "Basic sesame", token} {
		status, body := n.get(authorization)
		assert.Equal(t, http.StatusUnauthorized, status, authorization)
		assert.NotContains(t, string(body), "GPU-a")
	}
	status, body := n.get("Bearer " + token)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, string(body), "GPU-a")

	require.NoError(t, os.WriteFile(n.token, []byte("another"), 0o600))
	status, _ = n.get("Bearer " + token)
	assert.Equal(t, http.StatusUnauthorized, status)
	require.NoError(t, os.WriteFile(n.token, nil, 0o600))
	status, _ = n.get("Bearer ")
	assert.Equal(t, http.StatusServiceUnavailable, status)
}

func TestAKubeletThatIsAwayIsToldAndAskedAgainOnceItIsBack(t *testing.T) {
	n := newNode(t)
	n.pods = []*kubelet.PodResources{pod("ns", "one", gpus("GPU-a"))}
	c := allocations.New(nil)
	t.Cleanup(c.Close)
	ask := func() error {
		_, err := c.Pods(t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Token: token}})
		return err
	}
	require.ErrorContains(t, ask(), n.socket)
	for range 2 {
		stop := n.startKubelet()
		require.Eventually(t, func() bool { return ask() == nil }, patience.Wait(), time.Millisecond)
		stop()
		require.ErrorContains(t, ask(), n.socket)
	}
}

func TestAKubeletThatHangsIsGivenUp(t *testing.T) {
	n := newNode(t)
	n.hangs.Store(true)
	t.Cleanup(n.startKubelet())
	status, body := n.get("Bearer " + token)
	assert.Equal(t, http.StatusBadGateway, status)
	var problem podresourcesapi.Problem
	require.NoError(t, json.Unmarshal(body, &problem))
	assert.Contains(t, problem.Detail, n.socket)
}

func TestAnAnswerThatIsTooLargeIsAnErrorAndNoPiece(t *testing.T) {
	n := newNode(t)
	for i := range 20 {
		n.pods = append(n.pods, pod("ns", fmt.Sprintf("pod-%d", i), gpus(strings.Repeat("x", podresourcesapi.MaxAnswer/20))))
	}
	t.Cleanup(n.startKubelet())
	status, body := n.get("Bearer " + token)
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, string(body), fmt.Sprint(podresourcesapi.MaxAnswer))
}

func TestWithoutATokenTheProgramDoesNotStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	opts := podresources.Options{Listen: "127.0.0.1:0", Socket: "/nowhere", TokenFile: file, Logger: slog.New(slog.DiscardHandler)}
	_, err := podresources.New(t.Context(), opts)
	require.ErrorContains(t, err, file)
	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	_, err = podresources.New(t.Context(), opts)
	require.ErrorContains(t, err, "it is empty")
}

func TestWhatTheControllerIsToldInAnErrorNamesTheReason(t *testing.T) {
	n := newNode(t)
	c := allocations.New(nil)
	t.Cleanup(c.Close)
	_, err := c.Pods(t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Token: "another"}})
	require.ErrorContains(t, err, "401")
	require.ErrorContains(t, err, "the token in the file of --token-file")
}

func TestWhoShowsACertificateIsToldByTLSAndNobodyElse(t *testing.T) {
	const name = "ns.agents.hotseat.dev"
	dir, ca, other := t.TempDir(), mtlstest.New(t, "ca"), mtlstest.New(t, "other")
	cert, key := mtlstest.Write(t, dir, ca.Server(t, name))
	mtlstest.WriteCAs(t, filepath.Join(dir, "ca.crt"), ca)
	n := newNode(t, func(o *podresources.Options) {
		o.TokenFile, o.TLS = "", mtls.Server{CertFile: cert, KeyFile: key, ClientCAFile: filepath.Join(dir, "ca.crt")}
	})
	n.pods = []*kubelet.PodResources{pod("ns", "one", gpus("GPU-a"))}
	t.Cleanup(n.startKubelet())
	ask := func(name string, certificates ...tls.Certificate) error {
		c := allocations.New(func(_ context.Context, name string) (*tls.Config, error) {
			return &tls.Config{RootCAs: ca.Pool(), ServerName: name, Certificates: certificates}, nil
		})
		defer c.Close()
		_, err := c.Pods(t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Name: name, Token: token}})
		return err
	}
	require.NoError(t, ask(name, ca.Client(t, time.Hour)))
	require.ErrorContains(t, ask(name), "403 a client certificate is required")
	require.ErrorContains(t, ask(name, other.Client(t, time.Hour)), "403")
	require.ErrorContains(t, ask("other.agents.hotseat.dev", ca.Client(t, time.Hour)), "certificate is valid for "+name)
	require.Error(t, ask("", ca.Client(t, time.Hour)), "plain HTTP")
	_, err := podresources.New(t.Context(), podresources.Options{Listen: "127.0.0.1:0", Socket: n.socket, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "give --tls-cert, --tls-key and --client-ca, or --token-file")
}
