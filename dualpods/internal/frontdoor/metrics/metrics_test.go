package metrics_test

import (
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var llama = types.NamespacedName{Namespace: "team", Name: "llama"}

// text returns the metrics of a front door that has seen everything.
func text(t *testing.T) (m *metrics.Metrics, read func() string) {
	t.Helper()
	own := demand.NewOwn()
	require.True(t, own.Request(llama).Hold(1, 0))
	own.Request(llama).Enter("pod")
	m = metrics.New(own)
	m.Answered(llama, "gpu", 200)
	m.Answered(types.NamespacedName{}, "", 404)
	m.Held(llama, "passed", time.Second)
	m.Retried(llama)
	m.Chosen("LeastLoad")
	return m, func() string {
		out := httptest.NewRecorder()
		m.Handler().ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
		return out.Body.String()
	}
}

func TestMetricsAreThoseOfTheSpecification(t *testing.T) {
	_, read := text(t)
	shown := read()
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (hotseat_\S+) (\S+)$`).FindAllStringSubmatch(shown, -1) {
		kinds[m[1]] = m[2]
	}
	var code []string
	for _, m := range regexp.MustCompile(`(?m)^# HELP (hotseat_\S+) (.*)$`).FindAllStringSubmatch(shown, -1) {
		series := regexp.MustCompile(`(?m)^` + m[1] + `(?:_count)?\{([^}]*)\}`).FindStringSubmatch(shown)
		require.NotNil(t, series, m[1])
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(series[1], -1) {
			labels = append(labels, l[1])
		}
		code = append(code, strings.Join([]string{m[1], kinds[m[1]], strings.Join(labels, ", "), m[2]}, " | "))
	}
	spec, err := os.ReadFile("../../../../spec/metrics.md")
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(hotseat_frontdoor_[^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(spec), -1) {
		listed = append(listed, m[1]+" | "+m[2])
	}
	assert.ElementsMatch(t, code, listed, "spec/metrics.md on the right")
}

func TestSeriesOfAModelThatIsGoneGo(t *testing.T) {
	m, read := text(t)
	assert.Contains(t, read(), `hotseat_frontdoor_requests_total{code="200",model="llama",namespace="team",spec="gpu"} 1`)
	m.Forget(llama)
	assert.NotContains(t, read(), `hotseat_frontdoor_requests_total{code="200"`)
	assert.Contains(t, read(), `hotseat_frontdoor_requests_total{code="404",model="",namespace="",spec=""} 1`)
}
