package allocations_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/dualpods/internal/launchers/allocations"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name, container string, ids ...string) podresourcesapi.Pod {
	return podresourcesapi.Pod{Namespace: "ns", Name: name, Containers: []podresourcesapi.Container{{
		Name: container, Devices: map[string][]string{"nvidia.com/gpu": ids, "rdma/hca": {"mlx5_0"}},
	}}}
}

func TestGPUsOfARequesterAreThoseOfItsProgram(t *testing.T) {
	const serving = "inference-server"
	elsewhere := pod("req", serving, "GPU-b")
	elsewhere.Namespace = "other"
	for name, c := range map[string]struct {
		pods []podresourcesapi.Pod
		want []string
		says string
	}{
		"two GPUs, in any order":     {[]podresourcesapi.Pod{pod("req", serving, "GPU-b", "GPU-a")}, []string{"GPU-a", "GPU-b"}, ""},
		"a replica of a shared GPU":  {[]podresourcesapi.Pod{pod("req", serving, "GPU-a::3")}, []string{"GPU-a"}, ""},
		"two replicas of one GPU":    {[]podresourcesapi.Pod{pod("req", serving, "GPU-a::0", "GPU-a::1")}, []string{"GPU-a"}, ""},
		"MIG devices, old and new":   {[]podresourcesapi.Pod{pod("req", serving, "MIG-GPU-a/1/0", "MIG-5a1c")}, []string{"MIG-5a1c", "MIG-GPU-a/1/0"}, ""},
		"those of another container": {[]podresourcesapi.Pod{pod("req", "sidecar", "GPU-a")}, nil, ""},
		"those of another Pod":       {[]podresourcesapi.Pod{pod("other", serving, "GPU-a")}, nil, ""},
		"one of another namespace":   {[]podresourcesapi.Pod{elsewhere, pod("req", serving, "GPU-a")}, []string{"GPU-a"}, ""},
		"ids that are no UUIDs":      {[]podresourcesapi.Pod{pod("req", serving, "nvidia0")}, nil, "spec.allocationCheck.mode"},
		"two Pods of the name":       {[]podresourcesapi.Pod{pod("req", serving, "GPU-a"), pod("req", serving, "GPU-b")}, nil, "two Pods"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := allocations.GPUs(c.pods, "ns", "req", serving)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	both := pod("req", serving, "GPU-a")
	both.Containers = append(pod("", "requester", "GPU-b").Containers, both.Containers...)
	got, err := allocations.GPUs([]podresourcesapi.Pod{both}, "ns", "req", "requester")
	require.NoError(t, err)
	assert.Equal(t, []string{"GPU-b"}, got, "those of its sidecar")
}

// asked asks an agent that answers so, and gives its address.
func asked(t *testing.T, answers http.Handler) (address string, err error) {
	t.Helper()
	server := httptest.NewTLSServer(answers)
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := allocations.New(func(_ context.Context, name string) (*tls.Config, error) {
		return &tls.Config{RootCAs: roots, ServerName: name}, nil
	})
	t.Cleanup(client.Close)
	address = server.Listener.Addr().String()
	_, err = client.Pods(t.Context(), nodeview.Target{Address: address, Access: nodeview.Access{Name: "example.com"}}) // as httptest is called
	return address, err
}

func TestAnAnswerThatIsNoneIsAnErrorThatSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		says   string
	}{
		"a problem":           {http.StatusBadGateway, `{"status": 502, "detail": "the kubelet is away"}`, "502 the kubelet is away"},
		"somebody else's 404": {http.StatusNotFound, "<html>", "404 Not Found"},
		"no JSON":             {http.StatusOK, "<html>", "as a list of Pods"},
		"too much":            {http.StatusOK, strings.Repeat(" ", podresourcesapi.MaxAnswer+1), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			address, err := asked(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, address)
		})
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the controller was sent to %s", r.URL)
	}))
	t.Cleanup(elsewhere.Close)
	_, err := asked(t, http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	require.ErrorContains(t, err, "307 Temporary Redirect")
}
