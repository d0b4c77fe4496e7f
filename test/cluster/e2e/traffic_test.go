//go:build cluster

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// slowly has the stand-in give as many tokens as are asked for, up to 2000, in
// twentieths of a second.
var slowly = []string{"--sim-token-time=50ms", "--sim-tokens=2000"}

// stream begins a streamed answer of so many tokens, on a connection of its own
// to a Pod's port 8000, and gives what comes back, from the first token on.
func (s *site) stream(ip, model string, tokens int) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := shared.Dial(s.t.Context(), "tcp", net.JoinHostPort(ip, "8000"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	body := fmt.Sprintf(`{"model":%q,"prompt":"Hello","stream":true,"max_tokens":%d}`, model, tokens)
	_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(s.t, err)
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		require.NoError(s.t, err)
		if strings.HasPrefix(line, "data: ") {
			return conn, in
		}
	}
}

func TestAStreamThatEndsInTimeIsHeardToItsEndByWhoAsked(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "next", node: 1}, 0)
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	conn, in := s.stream(pod.Status.PodIP, "org/talker", 100)
	s.scale("talker", 0)
	s.scale("next", 1)
	s.draining(pod.Status.PodIP)
	var rest bytes.Buffer
	for !bytes.Contains(rest.Bytes(), []byte("[DONE]")) {
		line, err := in.ReadBytes('\n')
		rest.Write(line)
		require.NoError(t, err, "the stream was cut: %s", rest.Bytes())
	}
	assert.GreaterOrEqual(t, strings.Count(rest.String(), "data: "), 90)
	// The connection is kept open between two requests: it is the binding's, and ends with it.
	_, _ = fmt.Fprintf(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	left, _ := io.ReadAll(in)
	assert.NotContains(t, string(left), "org/next")
	s.served("next", 1)
	s.answers("next")
	s.instance("launcher-node-1", "talker", "sleeping")
}

func TestAStreamThatGoesOnIsCutAndTheNextModelNeverHearsOfIt(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "next", node: 1}, 0)
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	_, in := s.stream(pod.Status.PodIP, "org/talker", 2000)
	s.scale("talker", 0)
	s.scale("next", 1)
	rest, err := io.ReadAll(in)
	require.Error(t, err, "a reset tells the client that the answer is not whole")
	assert.NotContains(t, string(rest), "[DONE]")
	assert.NotContains(t, string(rest), "org/next")
	s.served("next", 1)
	s.answers("next")
	i := s.instance("launcher-node-1", "talker", "sleeping")
	assert.Zero(t, i.InFlight)
}

// endpoints are the addresses of a Service that are ready.
func (s *site) endpoints(service string) (ready []string) {
	s.t.Helper()
	var slices discoveryv1.EndpointSliceList
	require.NoError(s.t, api.List(s.t.Context(), &slices, client.InNamespace(s.ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	return ready
}

// follow gives the versions of a Pod as the API server tells them, until stop.
func (s *site) follow(pod *corev1.Pod, each func(*corev1.Pod)) (stop func()) {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig())
	require.NoError(s.t, err)
	watching, err := client.NewWithWatch(config, client.Options{})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	events, err := watching.Watch(ctx, &corev1.PodList{}, client.InNamespace(s.ns), client.MatchingFields{"metadata.name": pod.Name})
	require.NoError(s.t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				each(p)
			}
		}
	}()
	return func() { events.Stop(); cancel(); <-over }
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func gate(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == podmeta.ReadinessGate {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestRelayedLabelsAndTheReadinessGateTellWhoServes(t *testing.T) {
	s := newSite(t)
	const key = "example.com/model"
	s.service("by-model", map[string]string{key: "labelled"})
	pod := s.start(server{app: "labelled", node: 1, gate: true, labels: map[string]string{key: "labelled"}})
	var wrong []string
	stop := s.follow(pod, func(p *corev1.Pod) {
		_, labelled := p.Labels[key]
		if gate(p) && !labelled {
			wrong = append(wrong, fmt.Sprintf("%s: gate %v, label %v", p.ResourceVersion, gate(p), labelled))
		}
	})
	s.served("labelled", 1)
	s.eventually("the Service has the requester", func() bool { return len(s.endpoints("by-model")) == 1 })
	address := s.endpoints("by-model")[0]
	model, err := s.ask(address+":8000", "org/labelled")
	require.NoError(t, err)
	assert.Equal(t, "org/labelled", model)

	// The model is put to sleep by somebody: it serves no more until it is awake again.
	i := s.instance("launcher-node-1", "labelled", "awake")
	var retracted bool
	stopToo := s.follow(pod, func(p *corev1.Pod) {
		if _, labelled := p.Labels[key]; !labelled && !gate(p) {
			retracted = true
		}
	})
	_, err = s.launcher("launcher-node-1").Sleep(t.Context(), i.InstanceID, launcherapi.SleepRequest{})
	require.NoError(t, err)
	s.eventually("the next attempt", func() bool { return s.records("launcher-node-1")[0].Attempt == 2 })
	s.eventually("the gate is open again", func() bool { return gate(s.pod("labelled")) })
	stopToo()
	assert.True(t, retracted, "the label came off while the model slept")
	s.served("labelled", 1)
	s.eventually("the Service has the requester again", func() bool { return len(s.endpoints("by-model")) == 1 })

	// A requester that leaves is no endpoint any more before its model sleeps.
	s.delete("labelled")
	s.gone("labelled")
	stop()
	assert.Empty(t, wrong)
	assert.Empty(t, s.endpoints("by-model"))
}

func TestAnAnswerGoesOnWhileAnotherModelTakesTheOtherGPU(t *testing.T) {
	s := newSite(t)
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	_, in := s.stream(pod.Status.PodIP, "org/talker", 2000)
	s.deploy(server{app: "other", node: 1}, 1)
	s.served("other", 1)
	s.scale("other", 0)
	s.gone("other")
	assert.Equal(t, 1, s.instance("launcher-node-1", "talker", "awake").InFlight, "the answer goes on")
	for range 100 {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.NotContains(t, line, "[DONE]")
	}
}
