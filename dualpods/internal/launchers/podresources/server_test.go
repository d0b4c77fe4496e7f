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
	"hotseat.dev/hotseat/test/helpers/patience"
)

const name = "ns.agents.hotseat.dev"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a kubelet's PodResources API on a real socket, and the program beside it.
type node struct {
	kubelet.UnimplementedPodResourcesListerServer
	t       *testing.T
	socket  string
	ca      *mtlstest.CA
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
	n := &node{t: t, socket: filepath.Join(dir, "kubelet.sock"), ca: mtlstest.New(t, "ca")}
	cert, key := mtlstest.Write(t, dir, n.ca.Server(t, name))
	mtlstest.WriteCAs(t, filepath.Join(dir, "ca.crt"), n.ca)
	ctx, stop := context.WithCancel(context.Background())
	opts := podresources.Options{
		Listen: "127.0.0.1:0", Socket: n.socket, Logger: slog.New(slog.DiscardHandler),
		TLS: mtls.Server{CertFile: cert, KeyFile: key, ClientCAFile: filepath.Join(dir, "ca.crt")},
	}
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

// client gives a client of the controller that shows these certificates.
func (n *node) client(certificates ...tls.Certificate) *allocations.Client {
	n.t.Helper()
	c := allocations.New(func(_ context.Context, name string) (*tls.Config, error) {
		config := n.secured(certificates...)
		config.ServerName = name
		return config, nil
	})
	n.t.Cleanup(c.Close)
	return c
}

// ask asks the program as the controller does.
func (n *node) ask(c *allocations.Client) ([]podresourcesapi.Pod, error) {
	n.t.Helper()
	return c.Pods(n.t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Name: name}})
}

// secured is the TLS of a client that shows these certificates.
func (n *node) secured(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: n.ca.Pool(), ServerName: name, Certificates: certificates}
}

// dial connects as the controller does.
func (n *node) dial() (net.Conn, error) {
	n.t.Helper()
	d := tls.Dialer{Config: n.secured(n.ca.Client(n.t, time.Hour))}
	return d.DialContext(n.t.Context(), "tcp", n.address)
}

// get asks the program by hand.
func (n *node) get() (status int, body []byte) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, "https://"+n.address+podresourcesapi.Path, nil)
	require.NoError(n.t, err)
	own := &http.Transport{TLSClientConfig: n.secured(n.ca.Client(n.t, time.Hour))}
	defer own.CloseIdleConnections()
	resp, err := own.RoundTrip(req)
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
	pods, err := n.ask(n.client(n.ca.Client(t, time.Hour)))
	require.NoError(t, err)
	assert.Equal(t, []podresourcesapi.Pod{
		{Namespace: "ours", Name: "one", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-a"}}}}},
		{Namespace: "theirs", Name: "one", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{"nvidia.com/gpu": {"GPU-x"}}}}},
		{Namespace: "ours", Name: "two", Containers: []podresourcesapi.Container{{Name: "inference-server", Devices: map[string][]string{
			"nvidia.com/gpu": {"GPU-b", "GPU-c::1"}, "rdma/hca": {"mlx5_0"},
		}}}},
	}, pods)
}

func TestAKubeletThatIsAwayIsToldAndAskedAgainOnceItIsBack(t *testing.T) {
	n := newNode(t)
	n.pods = []*kubelet.PodResources{pod("ns", "one", gpus("GPU-a"))}
	c := n.client(n.ca.Client(t, time.Hour))
	ask := func() error {
		_, err := n.ask(c)
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
	status, body := n.get()
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
	status, body := n.get()
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Contains(t, string(body), fmt.Sprint(podresourcesapi.MaxAnswer))
}

func TestWhoShowsNoCertificateIsToldNothing(t *testing.T) {
	n, other := newNode(t), mtlstest.New(t, "other")
	n.pods = []*kubelet.PodResources{pod("ns", "one", gpus("GPU-a"))}
	t.Cleanup(n.startKubelet())
	ask := func(name string, certificates ...tls.Certificate) error {
		_, err := n.client(certificates...).Pods(t.Context(), nodeview.Target{Address: n.address, Access: nodeview.Access{Name: name}})
		return err
	}
	require.NoError(t, ask(name, n.ca.Client(t, time.Hour)))
	require.ErrorContains(t, ask(name), "403 a client certificate is required")
	require.ErrorContains(t, ask(name, other.Client(t, time.Hour)), "403")
	require.ErrorContains(t, ask("other.agents.hotseat.dev", n.ca.Client(t, time.Hour)), "certificate is valid for "+name)
	resp, err := http.Get("http://" + n.address + podresourcesapi.Path)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "plain HTTP")
}

func TestWithoutCertificatesTheProgramDoesNotStart(t *testing.T) {
	dir, ca := t.TempDir(), mtlstest.New(t, "ca")
	cert, key := mtlstest.Write(t, dir, ca.Server(t, name))
	mtlstest.WriteCAs(t, filepath.Join(dir, "ca.crt"), ca)
	for what, of := range map[string]mtls.Server{
		"no certificate": {ClientCAFile: filepath.Join(dir, "ca.crt")},
		"no authority":   {CertFile: cert, KeyFile: key},
	} {
		_, err := podresources.New(t.Context(), podresources.Options{Listen: "127.0.0.1:0", Socket: "/nowhere", TLS: of, Logger: slog.New(slog.DiscardHandler)})
		require.ErrorContains(t, err, "give --tls-cert, --tls-key and --client-ca", what)
	}
	_, err := podresources.New(t.Context(), podresources.Options{
		Listen: "127.0.0.1:0", Socket: "/nowhere", Logger: slog.New(slog.DiscardHandler),
		TLS: mtls.Server{CertFile: cert, KeyFile: key, ClientCAFile: filepath.Join(dir, "absent")},
	})
	require.ErrorContains(t, err, "absent")
}
