package telemetry

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
)

// metrics are those that count as things happen; the rest is read at each scrape.
type metrics struct {
	actuation *prometheus.HistogramVec
	running   *prometheus.HistogramVec
	decisions *prometheus.CounterVec
	failures  *prometheus.CounterVec
	deleted   *prometheus.CounterVec
	launchers *prometheus.HistogramVec
	programs  *prometheus.HistogramVec
	logBytes  prometheus.Counter
	restarts  *prometheus.CounterVec
}

// Bounds of the histograms' buckets, in seconds.
var (
	actuationBuckets = []float64{.01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
	callBuckets      = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
)

// What is read at each scrape.
var (
	bindingsDesc   = prometheus.NewDesc("hotseat_controller_bindings", "Bound requesters by the state of their instance; absent: there is no instance.", []string{"state"}, nil)
	requestersDesc = prometheus.NewDesc("hotseat_controller_requesters", "Requesters by state: waiting, served or leaving.", []string{"state"}, nil)
	waitingDesc    = prometheus.NewDesc("hotseat_controller_requesters_waiting", "Waiting requesters by their row of spec/binding.md.", []string{"row"}, nil)
	followersDesc  = prometheus.NewDesc("hotseat_controller_log_followers", "Logs of starting instances that the controller follows.", nil, nil)
	streamsDesc    = prometheus.NewDesc("hotseat_controller_launcher_streams", "Watched launchers by the state of their watch stream: connected or broken.", []string{"state"}, nil)
)

func newMetrics() *metrics {
	return &metrics{
		actuation: histograms("hotseat_controller_actuation_duration_seconds", "From the creation of a requester until its Pod is ready, by path: hot, warm or cold.", actuationBuckets, "path"),
		running:   histograms("hotseat_controller_actuation_running_duration_seconds", "From the start of a requester's container until its Pod is ready, by path: hot, warm or cold.", actuationBuckets, "path"),
		decisions: counters("hotseat_controller_decisions_total", "Decisions by the row of spec/binding.md and the step; row served: no other row fits.", "row", "step"),
		failures:  counters("hotseat_controller_step_failures_total", "Failed steps; conflict: the object was changed meanwhile, or the cache is stale.", "step", "conflict"),
		deleted:   counters("hotseat_controller_requesters_deleted_total", "Requesters that the controller deleted because their server is gone, by the row of spec/binding.md.", "row"),
		launchers: histograms("hotseat_controller_launcher_call_duration_seconds", "Calls to launchers: swap, call_off, sleep or delete. Outcomes: done, undone, undo_failed, refused, unreachable or cancelled.", callBuckets, "call", "outcome"),
		programs:  histograms("hotseat_controller_requester_call_duration_seconds", "Calls to requester programs. Outcomes: done, refused, unreachable or cancelled.", callBuckets, "call", "outcome"),
		logBytes:  prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_controller_log_relayed_bytes_total", Help: "Bytes of instances' logs that the controller sent to requesters to print."}),
		restarts:  counters("hotseat_controller_group_restarts_total", "Restarts of what belongs to a ServingGroup, without the servers that are started again because they ended, by level: instance, role or group.", "level"),
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.actuation, m.running, m.decisions, m.failures, m.deleted, m.launchers, m.programs, m.logBytes, m.restarts}
}

// Restarted counts a restart of what belongs to a ServingGroup.
func (t *Telemetry) Restarted(level string) { t.metrics.restarts.WithLabelValues(level).Inc() }

// Describe implements [prometheus.Collector].
func (t *Telemetry) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range t.metrics.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{bindingsDesc, requestersDesc, waitingDesc, streamsDesc, followersDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (t *Telemetry) Collect(ch chan<- prometheus.Metric) {
	for _, c := range t.metrics.collectors() {
		c.Collect(ch)
	}
	gauges := func(desc *prometheus.Desc, counts map[string]int) {
		for label, n := range counts {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), label)
		}
	}
	bindings, requesters, waiting := t.now()
	gauges(bindingsDesc, bindings)
	gauges(requestersDesc, requesters)
	gauges(waitingDesc, waiting)
	ch <- prometheus.MustNewConstMetric(followersDesc, prometheus.GaugeValue, float64(t.opts.Followers()))
	watched, connected := t.opts.Streams()
	gauges(streamsDesc, map[string]int{"connected": connected, "broken": watched - connected})
}

// now counts the requesters as they were seen last.
func (t *Telemetry) now() (bindings, requesters, waiting map[string]int) {
	bindings = map[string]int{absent: 0}
	for _, s := range launcher.States {
		bindings[string(s)] = 0
	}
	requesters, waiting = map[string]int{"waiting": 0, "served": 0, "leaving": 0}, map[string]int{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.requesters {
		if r.bound {
			bindings[r.state]++
		}
		switch {
		case r.leaving:
			requesters["leaving"]++
		case r.served:
			requesters["served"]++
		default:
			requesters["waiting"]++
			waiting[r.row]++
		}
	}
	return bindings, requesters, waiting
}

// absent is the state of an instance that is not there, or that is not known.
const absent = "absent"

func stateOf(o *decide.Observation) string {
	if o.Instance != nil && slices.Contains(launcher.States, launcher.State(o.Instance.State)) {
		return o.Instance.State
	}
	return absent
}

// count counts a decision and its step.
func (m *metrics) count(s binding.Sight) {
	row := s.Step.Rule
	if s.Served() {
		row = "served"
	}
	m.decisions.WithLabelValues(row, string(s.Step.Do)).Inc()
	switch {
	case s.Err != nil:
		m.failures.WithLabelValues(string(s.Step.Do), strconv.FormatBool(apierrors.IsConflict(s.Err) || apierrors.IsNotFound(s.Err))).Inc()
	case s.Step.Do == decide.DeleteRequester:
		m.deleted.WithLabelValues(row).Inc()
	}
}

// actuated counts a requester that has become ready.
func (m *metrics) actuated(path string, r *requester, ready time.Time) {
	m.actuation.WithLabelValues(path).Observe(max(0, ready.Sub(r.created).Seconds()))
	if !r.running.IsZero() {
		m.running.WithLabelValues(path).Observe(max(0, ready.Sub(r.running).Seconds()))
	}
}
