package act

import (
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// scrape returns the metrics of a site's controller.
func (s *site) scrape() string {
	s.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(s.t, registry.Register(s.c.opts.Metrics))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

func TestMetricsShowWhatAModelAsksForAndGets(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.count.Held = 3
	s.pass(time.Second)
	of := func(name, labels string) string { return name + `{model="llama",namespace="ns"` + labels }
	const prefix = "hotseat_controller_model_"
	text := s.scrape()
	assert.Contains(t, text, of(prefix+"demand", "} 3"))
	assert.Contains(t, text, of(prefix+"replicas", `,spec="default",state="waiting"} 1`))
	assert.NotContains(t, text, prefix+"scale_up")

	s.addPod("p", "default", `{"state":"Waiting"}`)
	s.pass(2 * time.Second)
	p := s.pod("p")
	p.Annotations[podmeta.AnnotationStatus], p.Annotations[podmeta.AnnotationPlacement] = serves, `{"launcher":"l","instance":"i"}`
	require.NoError(t, s.api.Update(t.Context(), p))
	s.pass(2 * time.Second)
	s.pass(time.Second)
	text = s.scrape()
	assert.Contains(t, text, prefix+`scale_up_duration_seconds_sum{how="hot",model="llama",namespace="ns",outcome="ready",spec="default"} 4`)
	assert.Contains(t, text, prefix+`scale_up_duration_seconds_count{how="hot",model="llama",namespace="ns",outcome="ready",spec="default"} 1`)
	assert.Contains(t, text, of(prefix+"replicas", `,spec="default",state="ready"} 1`))

	p = s.pod("p")
	p.Annotations[podmeta.AnnotationStatus] = `{"state":"Waiting","reason":"AttemptFailed","message":"why","since":"` + s.now.UTC().Format(time.RFC3339) + `"}`
	require.NoError(t, s.api.Update(t.Context(), p))
	s.pass(time.Second)
	s.pass(time.Second)
	text = s.scrape()
	assert.Contains(t, text, of(prefix+"failures_total", `,reason="EngineFailed",spec="default"} 1`))
	assert.Contains(t, text, of(prefix+"backoff_seconds", `,spec="default"} `))
	s.listed(text)

	s.count = demand.Count{}
	require.NoError(t, s.api.Delete(t.Context(), s.model()))
	m := s.model()
	m.Finalizers = nil
	require.NoError(t, client.IgnoreNotFound(s.api.Update(t.Context(), m)))
	s.pass(time.Second)
	assert.NotContains(t, s.scrape(), `model="llama"`)
}

func TestMetricsStaySmallWhenADeploymentIsScaledToAnyNumber(t *testing.T) {
	s := newSite(t, simple)
	s.change(func(m *v1alpha1.Model) { m.Spec.Autoscaling = &v1alpha1.ModelAutoscaling{Mode: v1alpha1.ScaleOff} })
	s.pass(time.Second)
	s.pass(time.Second)
	d := s.deployment("llama-default")
	d.Spec.Replicas = new(int32(10 * mostMeasured))
	require.NoError(t, s.api.Update(t.Context(), d))
	for range 2 {
		s.pass(time.Second)
		assert.Len(t, s.c.opts.Metrics.models[key].entries["default"].asked, mostMeasured)
	}
	assert.Contains(t, s.scrape(), fmt.Sprintf(`spec="default",state="desired"} %d`, 10*mostMeasured))
}

// listed compares the metrics with spec/metrics.md.
func (s *site) listed(text string) {
	s.t.Helper()
	kinds := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		kinds[found[1]] = found[2]
	}
	var code []string
	for _, found := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`).FindAllStringSubmatch(text, -1) {
		series := regexp.MustCompile(`(?m)^` + found[1] + `(?:_count)?\{([^}]*)\}`).FindStringSubmatch(text)
		require.NotNil(s.t, series, "no series of %s", found[1])
		var labels []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[1], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		code = append(code, strings.Join([]string{found[1], kinds[found[1]], strings.Join(labels, ", "), found[2]}, " | "))
	}
	spec, err := os.ReadFile("../../../../spec/metrics.md")
	require.NoError(s.t, err)
	var rows []string
	for _, found := range regexp.MustCompile("(?m)^\\| `(hotseat_controller_model_[^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(spec), -1) {
		rows = append(rows, found[1]+" | "+found[2])
	}
	assert.ElementsMatch(s.t, code, rows, "spec/metrics.md on the right")
}
