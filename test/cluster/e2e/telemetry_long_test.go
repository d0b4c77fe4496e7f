//go:build cluster && clusterlong

package e2e

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/test/helpers/patience"
)

// spans are those that a collector in the cluster's network was sent.
type spans struct {
	mu  sync.Mutex
	all []*tracev1.Span
}

func (c *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(content, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			c.all = append(c.all, scope.Spans...)
		}
	}
}

// of are the names of the spans of a trace, in the order of their beginnings.
func (c *spans) of(trace string) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.all, func(a, b *tracev1.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, s := range c.all {
		if hex.EncodeToString(s.TraceId) == trace {
			names = append(names, s.Name)
		}
	}
	return names
}

// traced has the controller send its traces to a collector until the test ends.
func (s *site) traced() *spans {
	s.t.Helper()
	listener, err := s.cluster.Listen(s.t.Context())
	require.NoError(s.t, err)
	c := &spans{}
	server := &http.Server{Handler: c}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	s.t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	s.setEnv("OTEL_EXPORTER_OTLP_ENDPOINT=http://"+listener.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=100")
	s.t.Cleanup(func() { s.setEnv("OTEL_EXPORTER_OTLP_ENDPOINT-", "OTEL_BSP_SCHEDULE_DELAY-") })
	return c
}

// setEnv changes the environment of the controller, and waits until it works again.
func (s *site) setEnv(variables ...string) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience.Wait()) // also when the test is over
	defer stop()
	for _, args := range [][]string{
		append([]string{"set", "env", "deployment/hotseat-controller"}, variables...),
		{"rollout", "status", "deployment/hotseat-controller", "--timeout=" + patience.Wait().String()},
	} {
		_, err := s.cluster.Kubectl(ctx, nil, append([]string{"-n", system}, args...)...)
		require.NoError(s.t, err)
	}
}

// leads waits until the controller works.
func (s *site) leads() {
	s.t.Helper()
	s.eventually("the controller leads", func() bool {
		return strings.Contains(s.controllerMetrics(), `leader_election_master_status{name="hotseat-controller"} 1`)
	})
}

func TestAnActuationIsOneTraceFromCreationToReady(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	collected := s.traced()
	s.leads()
	s.deploy(server{app: "model-a", node: 1}, 1)
	for _, way := range []struct{ path, phase string }{{"warm", "start"}, {"hot", "wake"}} {
		pod := s.served("model-a", 1)[0]
		trace := strings.ReplaceAll(string(pod.UID), "-", "")
		s.eventually("the trace of "+pod.Name+" is whole", func() bool { return slices.Contains(collected.of(trace), "actuation") })
		names := collected.of(trace)
		assert.Subset(t, names, []string{
			"wait: not running", "accelerators", "add record", "swap", "admit", way.phase, "open", "bind", "become ready", "publish", "wait: Pod ready",
		})
		assert.Equal(t, !s.hasPolicyForRequesters(), slices.Contains(names, "add finalizer"), "where the chart's policy adds it, the controller need not")
		assert.True(t, strings.Contains(s.kubectl("logs", "launcher-node-1"), trace), "the launcher names the trace")
		assert.True(t, strings.Contains(s.controllerMetrics(), `hotseat_controller_actuation_duration_seconds_count{path="`+way.path+`"} 1`), way.path)
		s.scale("model-a", 0)
		s.gone("model-a")
		if way.path == "warm" {
			s.scale("model-a", 1)
		}
	}
}

// controllerMetrics are what Prometheus would read.
func (s *site) controllerMetrics() string {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "controller"}))
	for _, p := range pods.Items {
		if !p.DeletionTimestamp.IsZero() || p.Status.PodIP == "" {
			continue
		}
		transport := s.once(nil)
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport, Timeout: patience.Wait()}).Get("http://" + net.JoinHostPort(p.Status.PodIP, "8080") + "/metrics")
		require.NoError(s.t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(s.t, err)
		return string(text)
	}
	require.Fail(s.t, "no controller runs")
	return ""
}

func TestTheControllerServesNoMetricThatIsNotListed(t *testing.T) {
	s := newBareSite(t)
	spec, err := os.ReadFile(root("spec/metrics.md"))
	require.NoError(t, err)
	s.leads()
	text := s.controllerMetrics()
	found := regexp.MustCompile(`(?m)^# TYPE (hotseat_\S+) `).FindAllStringSubmatch(text, -1)
	assert.NotEmpty(t, found)
	for _, m := range found {
		assert.Contains(t, string(spec), "| `"+m[1]+"` |")
	}
	assert.True(t, strings.Contains(text, "controller_runtime_reconcile_total"), "controller-runtime's own are there")
}
