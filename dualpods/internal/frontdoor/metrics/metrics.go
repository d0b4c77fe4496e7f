// Package metrics has the metrics of a front door. No client can make a series: requests for names that no Model
// has are in one.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
)

// Metrics implements the Observer of a Door.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	holds    *prometheus.HistogramVec
	retries  *prometheus.CounterVec
	choices  *prometheus.CounterVec
}

// The bounds of the histogram of holds, in seconds: from a wake to the start of a large model.
var holdBuckets = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// New returns the metrics of a front door. own has the requests that it has now.
func New(own *demand.Own) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hotseat_frontdoor_requests_total", Help: "Requests that were answered, by the Model, the entry whose replica answered, and the status code; 499: the client hung up."}, []string{"namespace", "model", "spec", "code"}),
		holds:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hotseat_frontdoor_hold_duration_seconds", Help: "How long requests waited for a replica of their Model, by outcome: passed, refused or client_gone.", Buckets: holdBuckets}, []string{"namespace", "model", "outcome"}),
		retries:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hotseat_frontdoor_retries_total", Help: "Replicas that failed before they answered, so that a request was passed to another one or refused."}, []string{"namespace", "model"}),
		choices:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hotseat_frontdoor_choices_total", Help: "Replicas that were chosen, by the strategy: LeastLoad or PrefixHash."}, []string{"strategy"}),
	}
	m.registry.MustRegister(m.requests, m.holds, m.retries, m.choices, &now{own: own}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Answered notes a request. model is zero if no Model has the name; entry is empty if no replica answered.
func (m *Metrics) Answered(model types.NamespacedName, entry string, code int) {
	m.requests.WithLabelValues(model.Namespace, model.Name, entry, strconv.Itoa(code)).Inc()
}

// Held notes how long a request waited.
func (m *Metrics) Held(model types.NamespacedName, outcome string, waited time.Duration) {
	m.holds.WithLabelValues(model.Namespace, model.Name, outcome).Observe(waited.Seconds())
}

// Retried notes a replica that failed before it answered.
func (m *Metrics) Retried(model types.NamespacedName) {
	m.retries.WithLabelValues(model.Namespace, model.Name).Inc()
}

// Chosen notes by which strategy a replica was chosen.
func (m *Metrics) Chosen(strategy string) { m.choices.WithLabelValues(strategy).Inc() }

// Forget drops the series of a Model that is gone.
func (m *Metrics) Forget(model types.NamespacedName) {
	of := prometheus.Labels{"namespace": model.Namespace, "model": model.Name}
	m.requests.DeletePartialMatch(of)
	m.holds.DeletePartialMatch(of)
	m.retries.DeletePartialMatch(of)
}

// now collects the requests that there are.
type now struct{ own *demand.Own }

var (
	inFlight = prometheus.NewDesc("hotseat_frontdoor_requests_in_flight", "Requests that replicas are answering.", []string{"namespace", "model"}, nil)
	held     = prometheus.NewDesc("hotseat_frontdoor_requests_held", "Requests that wait for a replica of their Model.", []string{"namespace", "model"}, nil)
)

func (n *now) Describe(to chan<- *prometheus.Desc) {
	to <- inFlight
	to <- held
}

func (n *now) Collect(to chan<- prometheus.Metric) {
	for model, count := range n.own.All() {
		to <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(count.Total()-count.Waiting()), model.Namespace, model.Name)
		to <- prometheus.MustNewConstMetric(held, prometheus.GaugeValue, float64(count.Held), model.Namespace, model.Name)
	}
}
