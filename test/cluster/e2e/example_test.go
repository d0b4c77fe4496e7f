//go:build cluster

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// labelled gives a node a label until the test's end.
func (s *site) labelled(node int, key, value string) {
	s.t.Helper()
	name := cluster.NodeName(node)
	s.kubectl("label", "node", name, key+"="+value)
	s.t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "label", "node", name, key+"-")
		assert.NoError(s.t, err)
	})
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// read gets what a URL answers.
func (d dialer) read(t *testing.T, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	transport := &http.Transport{DialContext: d, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience.Wait()}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestRequesterOfTheLLMDCommunityIsServedAsItStands(t *testing.T) {
	s := newPool(t, nil)
	pod := s.servesTheCommunity(t)
	read, _ := podmeta.ReadRequester(pod)
	assert.Equal(t, s.hasPolicyForRequesters(), read.TLS, "the chart adds the mount where it can")
}

// servesTheCommunity applies the community's example, and deletes its Pod once it was served.
func (s *site) servesTheCommunity(t *testing.T) *corev1.Pod {
	const model = "ibm-granite/granite-3.3-2b-instruct"
	s.labelled(1, "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB")
	s.apply("examples/llm-d/requester.yaml")
	s.ready("pod/example-request")
	pod := s.pod("example-request")
	answered, err := s.ask(pod.Status.PodIP+":8000", model)
	require.NoError(t, err)
	assert.Equal(t, model, answered)
	s.eventually("it has the labels of its patch", func() bool {
		labels := s.pod(pod.Name).Labels
		return labels["model-reg"] == "ibm-granite" && labels["model-repo"] == "granite-3.3-2b-instruct"
	})

	metrics, err := dialer(s.cluster.Dial).read(t, "http://"+pod.Status.PodIP+":8083/metrics")
	require.NoError(t, err)
	assert.Contains(t, metrics, "hotseat_requester_ready 1\n")
	assert.Contains(t, metrics, "hotseat_requester_engine_metrics_whole 1\n")
	_, err = dialer(s.cluster.Dial).read(t, "http://"+pod.Status.PodIP+":8084/debug/pprof/")
	require.Error(t, err, "profiles are on the Pod's loopback address")
	ns := s.networkOf(t, pod.Name)
	inPod := dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialIn(ctx, ns, network, address)
	})
	profile, err := inPod.read(t, "http://127.0.0.1:8084/debug/pprof/goroutine?debug=1")
	require.NoError(t, err)
	assert.Contains(t, profile, "goroutine profile:")

	s.delete(pod.Name)
	s.eventually("it is gone", func() bool {
		return apierrors.IsNotFound(s.api.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}))
	})
	return pod
}
