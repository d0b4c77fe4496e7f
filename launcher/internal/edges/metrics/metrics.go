// Package metrics counts what the launcher does, for Prometheus. spec/metrics.md
// lists every metric.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/edges/version"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Metrics is one launcher's registry. Its methods never block.
type Metrics struct {
	registry *prometheus.Registry

	transitions  *prometheus.CounterVec
	failures     *prometheus.CounterVec
	phases       *prometheus.HistogramVec
	swaps        *prometheus.CounterVec
	swapTime     *prometheus.HistogramVec
	refusals     *prometheus.CounterVec
	requests     *prometheus.HistogramVec
	cut          prometheus.Counter
	unwritten    prometheus.Counter
	starts       *prometheus.CounterVec
	api          *prometheus.HistogramVec
	pulls        *prometheus.CounterVec
	pulledBytes  prometheus.Counter
	evictions    prometheus.Counter
	evictedBytes prometheus.Counter
	doorRequests *prometheus.CounterVec
	doorWaits    *prometheus.HistogramVec
	doorChanges  *prometheus.CounterVec
}

// Upper bounds of the histograms' buckets, in seconds.
var (
	phaseBuckets   = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	requestBuckets = []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
)

// New makes the metrics that count events; [Metrics.Watch] adds those of the
// present state.
func New() *Metrics {
	m := &Metrics{
		registry:     prometheus.NewRegistry(),
		transitions:  counters("hotseat_instance_transitions_total", "Changes of an instance's state.", "from", "to"),
		failures:     counters("hotseat_instance_failures_total", "Instances that failed, by cause.", "cause"),
		phases:       histograms("hotseat_phase_duration_seconds", "Time that instances spent in each state, and in drain, engine_sleep, engine_wake and canary within them.", phaseBuckets, "phase"),
		swaps:        counters("hotseat_swaps_total", "Finished swaps, by outcome: done, noop, dry_run, refused, undone, undo_failed or interrupted.", "outcome"),
		swapTime:     histograms("hotseat_swap_duration_seconds", "Duration of swaps, including the wait for their turn.", phaseBuckets, "outcome"),
		refusals:     counters("hotseat_refusals_total", "Refused calls, by code and, where there was no room, by the limit that the call would exceed.", "code", "bound"),
		requests:     histograms("hotseat_proxy_request_duration_seconds", "Duration of requests at the instances' public ports, including the time held.", requestBuckets, "class", "outcome"),
		cut:          prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_requests_cut_total", Help: "Answers in flight cut because a drain ran out of time."}),
		unwritten:    prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_state_write_failures_total", Help: "Records that could not be written to the state folder."}),
		starts:       counters("hotseat_starts_total", "Engine processes started, by exec or by fork; fell_back: by exec because no preloader was ready or about to be.", "by", "fell_back"),
		pulls:        counters("hotseat_model_pulls_total", "Finished pulls of models, by outcome: done, there, cancelled, or the reason of the failure.", "outcome"),
		pulledBytes:  prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_model_network_bytes_total", Help: "Bytes that pulls of models have received."}),
		evictions:    prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_model_evictions_total", Help: "Models removed because another model needed their room."}),
		evictedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "hotseat_model_evicted_bytes_total", Help: "Bytes freed by removing models for others."}),
		doorRequests: counters("hotseat_front_door_requests_total", "Requests at the front door that are over, by outcome: answered, cut, refused, invalid, unknown_model, queue_full, timeout, failed or client_gone.", "outcome"),
		doorWaits:    histograms("hotseat_front_door_wait_seconds", "Time that requests waited at the front door for their model, by outcome.", phaseBuckets, "outcome"),
		doorChanges:  counters("hotseat_front_door_transitions_total", "Starts, wakes, sleeps and stops that the front door has brought about.", "kind", "outcome"),
		api:          histograms("hotseat_api_request_duration_seconds", "Duration of requests at the control API.", requestBuckets, "route", "method", "status"),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hotseat_build_info", Help: "Always 1; the version is in the label."}, []string{"version"})
	build.WithLabelValues(version.Version).Set(1)
	m.registry.MustRegister(m.transitions, m.failures, m.phases, m.swaps, m.swapTime, m.refusals, m.requests, m.cut, m.unwritten, m.starts, m.api, m.pulls, m.pulledBytes, m.evictions, m.evictedBytes, m.doorRequests, m.doorWaits, m.doorChanges, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch adds the metrics of the present state: live, preloaders and stalled, which says since
// when the disk of the state folder does not answer, are asked for it at each scrape. A
// second call panics.
func (m *Metrics) Watch(live Live, preloaders func() launcherapi.PreloaderList, stalled func() time.Time) {
	m.registry.MustRegister(liveCollector{live, preloaders, stalled})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Transition counts a change of state.
func (m *Metrics) Transition(from, to launcher.State, cause string) {
	m.transitions.WithLabelValues(string(from), string(to)).Inc()
	if to == launcher.Failed {
		if cause == "" {
			cause = "unknown"
		}
		m.failures.WithLabelValues(cause).Inc()
	}
}

// Pulled counts a pull of a model.
func (m *Metrics) Pulled(outcome string, networkBytes int64) {
	m.pulls.WithLabelValues(outcome).Inc()
	m.pulledBytes.Add(float64(networkBytes))
}

// Evicted counts a model that had to go for another.
func (m *Metrics) Evicted(bytes int64) {
	m.evictions.Inc()
	m.evictedBytes.Add(float64(bytes))
}

// Phase notes how long a phase, of an instance or of a swap, took.
func (m *Metrics) Phase(name string, took time.Duration) {
	m.phases.WithLabelValues(name).Observe(took.Seconds())
}

// Refused counts a refusal; bound is empty unless it was for want of room.
func (m *Metrics) Refused(code, bound string) { m.refusals.WithLabelValues(code, bound).Inc() }

// Cut counts answers in flight that were cut.
func (m *Metrics) Cut(requests int) { m.cut.Add(float64(requests)) }

// WriteFailed counts records that could not be written to the state folder.
func (m *Metrics) WriteFailed() { m.unwritten.Inc() }

// Started counts an engine's process that was made.
func (m *Metrics) Started(by string, fellBack bool) {
	m.starts.WithLabelValues(by, strconv.FormatBool(fellBack)).Inc()
}

// Swap notes the end of a swap.
func (m *Metrics) Swap(outcome string, took time.Duration) {
	m.swaps.WithLabelValues(outcome).Inc()
	m.swapTime.WithLabelValues(outcome).Observe(took.Seconds())
}

// Request notes a request at an instance's public port.
func (m *Metrics) Request(class, outcome string, took time.Duration) {
	m.requests.WithLabelValues(class, outcome).Observe(took.Seconds())
}

// API notes a request at the control API.
func (m *Metrics) API(route, method string, status int, took time.Duration) {
	m.api.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}
