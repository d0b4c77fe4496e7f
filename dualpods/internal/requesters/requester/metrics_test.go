package requester

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
)

func (s *running) metrics() string {
	s.t.Helper()
	got := s.call(http.MethodGet, s.probes+"/metrics", "")
	require.Equal(s.t, 200, got.status)
	require.Equal(s.t, "text/plain; version=0.0.4; charset=utf-8", got.header.Get("Content-Type"))
	return got.body
}

func bindWithMetrics(t *testing.T, s *running, handler http.HandlerFunc) {
	t.Helper()
	engine := httptest.NewServer(handler)
	t.Cleanup(engine.Close)
	config := configFor(t, "one", strings.TrimPrefix(engine.URL, "http://"))
	config.MetricsURL = engine.URL + "/metrics"
	require.Equal(t, 200, s.put(config).status)
}

func TestTheEnginesMetricsStandBeforeTheRequestersOwn(t *testing.T) {
	s := start(t)
	assert.Contains(t, s.metrics(), "hotseat_requester_build_info{version=\"test\"} 1\n")
	assert.Contains(t, s.metrics(), "hotseat_requester_bound 0\n")
	assert.NotContains(t, s.metrics(), "engine_metrics")
	bindWithMetrics(t, s, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/metrics", r.URL.Path)
		_, _ = io.WriteString(w, "vllm:num_requests_running 3\nvllm:last 1")
	})
	require.Equal(t, 200, s.post(requesterapi.PathBecomeReady, "").status)
	text := s.metrics()
	assert.True(t, strings.HasPrefix(text, "vllm:num_requests_running 3\nvllm:last 1\n# HELP hotseat_requester_build_info"), text)
	assert.Contains(t, text, "\nhotseat_requester_bound 1\n")
	assert.Contains(t, text, "\nhotseat_requester_ready 1\n")
	assert.Contains(t, text, "\nhotseat_requester_engine_metrics_whole 1\n")
}

func TestEnginesMetricsThatBreakOffAreCutAtALine(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"broken off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "a 1\nb 2")
		},
		"a line without end": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a 1\n"+strings.Repeat("b", 2*scrapeLine))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			bindWithMetrics(t, s, handler)
			text := s.metrics()
			assert.True(t, strings.HasPrefix(text, "a 1\n# HELP hotseat_requester"), text[:min(len(text), 100)])
			assert.Contains(t, text, "\nhotseat_requester_engine_metrics_whole 0\n")
		})
	}
}

func TestAnEngineThatHasNoMetricsLeavesTheRequestersOwn(t *testing.T) {
	s := start(t)
	bindWithMetrics(t, s, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	text := s.metrics()
	assert.True(t, strings.HasPrefix(text, "# HELP hotseat_requester"), text)
	assert.Contains(t, text, "\nhotseat_requester_engine_metrics_whole 0\n")
}

func TestAnEngineThatDoesNotAnswerDoesNotHoldTheMetrics(t *testing.T) {
	s := start(t)
	e := newEngine(t)
	config := configFor(t, "one", e.address)
	config.MetricsURL = "http://" + e.address + "/metrics"
	require.Equal(t, 200, s.put(config).status)
	assert.Contains(t, s.metrics(), "\nhotseat_requester_engine_metrics_whole 0\n")
}

func TestLinesAreCopiedUpToABound(t *testing.T) {
	var out strings.Builder
	require.ErrorContains(t, copyLines(&out, strings.NewReader("12\n34\n56\n"), 8), "longer than")
	require.Equal(t, "12\n34\n", out.String())
	out.Reset()
	require.NoError(t, copyLines(&out, iotest.OneByteReader(strings.NewReader("12\n34")), 8))
	require.Equal(t, "12\n34\n", out.String())
	broken := errors.New("broken")
	require.ErrorIs(t, copyLines(&out, iotest.ErrReader(broken), 8), broken)
	require.Error(t, copyLines(&half{}, strings.NewReader("12\n"), 8))
}

func TestTheMetricsAreThoseThatTheSpecificationLists(t *testing.T) {
	s := start(t)
	bindWithMetrics(t, s, func(http.ResponseWriter, *http.Request) {})
	text := s.metrics()
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		kinds[m[1]] = m[2]
	}
	var code []string
	for _, m := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`).FindAllStringSubmatch(text, -1) {
		label := ""
		if l := regexp.MustCompile(`(?m)^` + m[1] + `\{([a-z]+)=`).FindStringSubmatch(text); l != nil {
			label = l[1]
		}
		code = append(code, strings.Join([]string{m[1], kinds[m[1]], label, m[2]}, " | "))
	}
	spec, err := os.ReadFile("../../../../spec/metrics.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(hotseat_requester_[^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(spec), -1) {
		listed = append(listed, m[1]+" | "+m[2])
	}
	assert.ElementsMatch(t, code, listed, "spec/metrics.md on the right")
}
