package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func newTelemetry() *Telemetry {
	return New(Options{Streams: func() (int, int) { return 3, 2 }, Followers: func() int { return 1 }})
}

// scrape gives what Prometheus would read.
func scrape(t *testing.T, of *Telemetry) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(of)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).
		ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	return answer.Body.String()
}

// rows are those of spec/binding.md, which package binding compares with what it does.
var rows = sync.OnceValue(func() map[string]bool {
	text, err := os.ReadFile("../../../../spec/binding.md")
	if err != nil {
		panic(err)
	}
	all := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+?) \|`).FindAllSubmatch(text, -1) {
		all[string(row[1])] = true
	}
	return all
})

func TestTheRowsThatADocumentNamesAreThoseOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/tracing.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "at that row of [binding.md](binding.md):")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "|")
	named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1)
	assert.NotEmpty(t, named)
	for _, row := range named {
		assert.True(t, rows()[row[1]], row[1])
	}
}

const node = "node-7"

// seen is a sight of the requester pod-x, which was created three seconds ago on
// a node whose launcher is an hour old, and runs since a second.
func seen(row string, do decide.Action) binding.Sight {
	if row != "" && !rows()[row] {
		panic("spec/binding.md has no row " + row)
	}
	now := time.Now()
	return binding.Sight{
		Node: node, Step: decide.Step{Rule: row, Do: do}, Began: now, Ended: now,
		Observation: decide.Observation{
			Common: decide.Common{Requester: decide.Requester{
				UID: "uid-x", Namespace: "ns-x", Name: "pod-x", Exists: true,
				Created: now.Add(-3 * time.Second), Running: true, Started: now.Add(-time.Second),
			}},
			Launcher: &decide.Launcher{Name: "launcher-x", Created: now.Add(-time.Hour)},
		},
	}
}

// ready makes it one of a requester that serves and whose Pod is ready.
func ready(s binding.Sight, made bool) binding.Sight {
	o := &s.Observation
	o.Record = &podmeta.Binding{Instance: "instance-x", RequesterUID: o.Requester.UID, New: made}
	o.Instance = &launcherapi.Instance{InstanceID: "instance-x", State: "awake"}
	o.Requester.PodReady = s.Ended.Add(-500 * time.Millisecond)
	s.Step = decide.Step{Do: decide.Nothing}
	return s
}

func TestTheMetricsAreThoseThatTheSpecificationLists(t *testing.T) {
	m := newTelemetry()
	m.Saw(seen("no record", decide.AddRecord))
	failed := seen("no record", decide.AddRecord)
	failed.Err = errors.New("no")
	m.Saw(failed)
	m.Saw(ready(seen("", decide.Nothing), true))
	m.Saw(seen("died while it served", decide.DeleteRequester))
	dead, err := client.New(client.Options{Server: "http://127.0.0.1:1"})
	require.NoError(t, err)
	defer dead.Close()
	_, err = m.Launcher(dead).Sleep(t.Context(), "a", launcherapi.SleepRequest{})
	require.Error(t, err)
	programs := spi.New(nil)
	defer programs.Close()
	m.Restarted("group")
	_, err = m.Requesters(programs).Proxy(t.Context(), "127.0.0.1:1")
	require.Error(t, err)

	text := scrape(t, m)
	kinds := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		kinds[found[1]] = found[2]
	}
	var code []string
	for _, found := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`).FindAllStringSubmatch(text, -1) {
		code = append(code, strings.Join([]string{found[1], kinds[found[1]], labels(text, found[1]), found[2]}, " | "))
	}
	spec, err := os.ReadFile("../../../../spec/metrics.md")
	require.NoError(t, err)
	var listed []string
	for _, found := range regexp.MustCompile("(?m)^\\| `(hotseat_controller_[^`]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(spec), -1) {
		if strings.HasPrefix(found[1], "hotseat_controller_model_") {
			continue // package act compares these
		}
		listed = append(listed, found[1]+" | "+found[2])
	}
	assert.ElementsMatch(t, code, listed, "spec/metrics.md on the right")
	for _, name := range []string{"pod-x", "ns-x", "uid-x", "launcher-x", "instance-x", node} {
		assert.NotContains(t, text, name, "no label has a value for each Pod")
	}
}

func labels(text, name string) string {
	found := regexp.MustCompile(`(?m)^` + name + `(?:_bucket)?\{([^}]*)\}`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	var names []string
	for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(found[1], -1) {
		if l[1] != "le" {
			names = append(names, l[1])
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestAnActuationIsCountedOnceByItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		for path, row := range map[string]struct {
			made     bool
			launcher time.Duration // its age when the requester is ready
		}{"hot": {false, time.Hour}, "warm": {true, time.Hour}, "cold": {true, time.Second}} {
			of := func(s binding.Sight) binding.Sight {
				s.Observation.Requester.UID = types.UID(path)
				return s
			}
			m.Saw(of(seen("swap under way", decide.Nothing)))
			time.Sleep(2 * time.Second)
			last := of(ready(seen("", decide.Nothing), row.made))
			last.Observation.Launcher.Created = last.Ended.Add(-row.launcher)
			m.Saw(last)
			m.Saw(last)
		}
		text := scrape(t, m)
		for _, path := range []string{"hot", "warm", "cold"} {
			// Created within the second after 3 s before it was seen first, and ready 2 s after that.
			assert.Contains(t, text, `hotseat_controller_actuation_duration_seconds_sum{path="`+path+`"} 4`)
			assert.Contains(t, text, `hotseat_controller_actuation_duration_seconds_count{path="`+path+`"} 1`)
			assert.Contains(t, text, `hotseat_controller_actuation_running_duration_seconds_sum{path="`+path+`"} 2`)
		}
		assert.Contains(t, text, `hotseat_controller_requesters{state="served"} 3`)
		assert.Contains(t, text, `hotseat_controller_bindings{state="awake"} 3`)
	})
}

func TestARequesterThatWasReadyBeforeOrLeavesIsNoActuation(t *testing.T) {
	m := newTelemetry()
	m.Saw(ready(seen("", decide.Nothing), false))
	m.Saw(ready(seen("", decide.Nothing), false))
	gone := seen("leaving, never bound", decide.Nothing)
	gone.Observation.Requester.UID, gone.Leaving = "uid-gone", true
	m.Saw(gone)
	back := ready(gone, false)
	m.Saw(back)
	assert.NotContains(t, scrape(t, m), "actuation_duration_seconds_count")
}

func TestRequestersAreCountedByWhatTheyWaitForUntilTheyAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		m.Saw(seen("launcher silent", decide.Tell))
		unplaced := seen("not running", decide.Nothing)
		unplaced.Node, unplaced.Observation.Requester.UID = "", "uid-y"
		m.Saw(unplaced)
		text := scrape(t, m)
		assert.Contains(t, text, `hotseat_controller_requesters_waiting{row="launcher silent"} 1`)
		assert.Contains(t, text, `hotseat_controller_requesters_waiting{row="not running"} 1`)
		assert.Contains(t, text, `hotseat_controller_requesters{state="waiting"} 2`)
		assert.Contains(t, text, `hotseat_controller_launcher_streams{state="broken"} 1`)

		m.Passed(node, []types.UID{"uid-x"})
		m.Passed("", nil) // uid-y may be on its way to a node
		unplaced.Node = node
		m.Saw(unplaced)
		m.Passed("", nil)
		assert.Contains(t, scrape(t, m), `hotseat_controller_requesters{state="waiting"} 2`)
		unplaced.Node, unplaced.Observation.Requester.UID = "", "uid-z"
		m.Saw(unplaced)
		m.Passed(node, nil)
		time.Sleep(2 * moving)
		m.Passed("", nil)
		text = scrape(t, m)
		assert.Contains(t, text, `hotseat_controller_requesters{state="waiting"} 0`)
		assert.NotContains(t, text, "requesters_waiting")
		assert.Empty(t, m.requesters)
		assert.Empty(t, m.nodes)
	})
}

func TestACallForARequesterOfWhichNothingElseIsToldIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Options{Tracing: &Tracing{}})
		m.asked(forUID(t, "uid-gone"), call{time.Now(), time.Now(), nil}) // the pass breaks off, and the requester goes
		time.Sleep(waitsForSight / 2)
		m.asked(forUID(t, "uid-coming"), call{time.Now(), time.Now(), nil})
		m.Passed(node, nil)
		assert.Len(t, m.early, 2, "a pass over another node says nothing of them")
		time.Sleep(waitsForSight/2 + time.Second)
		m.Passed(node, nil)
		assert.Contains(t, m.early, types.UID("uid-coming"))
		assert.Len(t, m.early, 1)
	})
}

func TestWhatACallCameToIsCounted(t *testing.T) {
	m := newTelemetry()
	answer := http.StatusConflict
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outcome := ""
		if r.URL.Path == "/v2/vllm/swap" {
			outcome = `,"outcome":"undone"`
		}
		w.WriteHeader(answer)
		_, _ = io.WriteString(w, `{"status":409,"detail":"no"`+outcome+`}`)
	}))
	defer server.Close()
	c, err := client.New(client.Options{Server: server.URL})
	require.NoError(t, err)
	defer c.Close()
	programs := spi.New(nil)
	defer programs.Close()
	address := strings.TrimPrefix(server.URL, "http://")

	_, err = m.Launcher(c).SwapOnce(t.Context(), "key", launcherapi.SwapRequest{}, nil)
	require.Error(t, err)
	_, err = m.Launcher(c).Delete(t.Context(), "a")
	require.Error(t, err)
	require.Error(t, m.Requesters(programs).BecomeReady(t.Context(), address, "b"))
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = m.Requesters(programs).Accelerators(ended, address)
	require.Error(t, err)
	answer = http.StatusOK
	_, err = m.Requesters(programs).Proxy(t.Context(), address)
	require.NoError(t, err)

	text := scrape(t, m)
	for _, want := range []string{
		`launcher_call_duration_seconds_count{call="swap",outcome="undone"} 1`,
		`launcher_call_duration_seconds_count{call="delete",outcome="refused"} 1`,
		`requester_call_duration_seconds_count{call="become_ready",outcome="refused"} 1`,
		`requester_call_duration_seconds_count{call="accelerators",outcome="cancelled"} 1`,
		`requester_call_duration_seconds_count{call="proxy",outcome="done"} 1`,
	} {
		assert.Contains(t, text, want)
	}
}

func TestAStepThatFailsIsCountedAndNoDeletion(t *testing.T) {
	m := newTelemetry()
	s := seen("died while it served", decide.DeleteRequester)
	s.Err = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "pod-x", errors.New("changed"))
	m.Saw(s)
	text := scrape(t, m)
	assert.Contains(t, text, `step_failures_total{conflict="true",step="delete requester"} 1`)
	assert.NotContains(t, text, "requesters_deleted_total")
	s.Err = nil
	m.Saw(s)
	assert.Contains(t, scrape(t, m), `requesters_deleted_total{row="died while it served"} 1`)
}
