package act

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Metrics counts the decisions of passes, and shows the last decision for each Model. The series of a Model end when it
// is deleted. Its methods may be called concurrently.
type Metrics struct {
	scaleUp  *prometheus.HistogramVec
	failures *prometheus.CounterVec
	now      func() time.Time

	mu     sync.Mutex
	models map[types.NamespacedName]*measured
}

var _ prometheus.Collector = (*Metrics)(nil)

// measured is a Model as the last pass saw it.
type measured struct {
	demand  int
	entries map[string]*measuredEntry
}

type measuredEntry struct {
	replicas map[string]int // by state
	backoff  time.Time      // until when it backs off
	failed   time.Time      // when it failed last
	desired  int
	asked    []time.Time // when each replica that is not ready yet was asked for, in order
}

var ofEntryLabels = []string{"namespace", "model", "spec"}

// Collect computes these at each scrape.
var (
	demandDesc   = prometheus.NewDesc("hotseat_controller_model_demand", "Requests for a Model that are held or in flight, at all front doors.", []string{"namespace", "model"}, nil)
	replicasDesc = prometheus.NewDesc("hotseat_controller_model_replicas", "Replicas of an entry of a Model by state: desired, waiting, ready or losing.", append(slices.Clone(ofEntryLabels), "state"), nil)
	backoffDesc  = prometheus.NewDesc("hotseat_controller_model_backoff_seconds", "Seconds until the controller tries an entry of a Model again after a failure; absent: it does not back off.", ofEntryLabels, nil)
)

// NewMetrics makes Metrics without Models.
func NewMetrics(now func() time.Time) *Metrics {
	return &Metrics{
		now: now,
		scaleUp: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "hotseat_controller_model_scale_up_duration_seconds",
			Help:    "Time from the write that asks for a replica of an entry until the replica serves. how: hot (a sleeper was woken), cold (an engine was started) or seat. outcome: ready; or failed, and how is empty.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800},
		}, append(slices.Clone(ofEntryLabels), "how", "outcome")),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hotseat_controller_model_failures_total", Help: "Failures of entries of Models, by their reason in the status.",
		}, append(slices.Clone(ofEntryLabels), "reason")),
		models: map[types.NamespacedName]*measured{},
	}
}

// see notes what a pass has decided.
func (m *Metrics) see(w *world) {
	if m == nil {
		return
	}
	key := client.ObjectKeyFromObject(w.model)
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.models[key]
	if of == nil {
		of = &measured{entries: map[string]*measuredEntry{}}
		m.models[key] = of
	}
	of.demand = w.demand.Total()
	there := map[string]bool{}
	for i, e := range w.entries {
		d := &w.decision.Entries[i]
		there[e.Name] = true
		was, known := of.entries[e.Name]
		if !known {
			was = &measuredEntry{desired: d.Asked.Replicas}
			if d.Record.LastFailure != nil {
				was.failed = d.Record.LastFailure.Time
			}
			of.entries[e.Name] = was
		}
		m.seeEntry(key, was, w, e, d)
	}
	maps.DeleteFunc(of.entries, func(name string, _ *measuredEntry) bool {
		if !there[name] {
			m.drop(prometheus.Labels{"namespace": key.Namespace, "model": key.Name, "spec": name})
		}
		return !there[name]
	})
}

// mostMeasured bounds how many replicas of an entry are measured at a time. In mode Off, users may scale a Deployment to
// any number.
const mostMeasured = 1000

func (m *Metrics) seeEntry(key types.NamespacedName, was *measuredEntry, w *world, e *entry, d *decide.EntryDecision) {
	for range min(d.Asked.Replicas-was.desired, mostMeasured-len(was.asked)) {
		was.asked = append(was.asked, w.now)
	}
	was.desired = d.Asked.Replicas
	for _, pod := range e.pods {
		if !slices.Contains(d.Serve, pod.Name) || pod.Annotations[podmeta.AnnotationServed] != "" || len(was.asked) == 0 {
			continue
		}
		m.scaleUp.WithLabelValues(key.Namespace, key.Name, e.Name, howOf(pod), "ready").Observe(w.now.Sub(was.asked[0]).Seconds())
		was.asked = was.asked[1:]
	}
	if f := d.Record.LastFailure; f != nil && f.Time.After(was.failed) {
		was.failed = f.Time
		m.failures.WithLabelValues(key.Namespace, key.Name, e.Name, f.Reason).Inc()
		if len(was.asked) > 0 {
			m.scaleUp.WithLabelValues(key.Namespace, key.Name, e.Name, "", "failed").Observe(w.now.Sub(was.asked[0]).Seconds())
			was.asked = was.asked[1:]
		}
	}
	was.asked = was.asked[:min(len(was.asked), d.Waiting)] // the others were called off
	was.replicas = map[string]int{"desired": d.Asked.Replicas, "waiting": d.Waiting, "ready": d.Ready, "losing": d.Losing}
	was.backoff = d.Record.BackoffUntil
}

// howOf returns how a replica came to serve.
func howOf(pod *corev1.Pod) string {
	promised, _ := podmeta.ReadPlacement(pod)
	switch {
	case podmeta.IsSeat(pod):
		return "seat"
	case promised.Instance != "":
		return "hot"
	default:
		return "cold"
	}
}

// forget drops the series of a Model that is gone.
func (m *Metrics) forget(key types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.models, key)
	m.drop(prometheus.Labels{"namespace": key.Namespace, "model": key.Name})
}

func (m *Metrics) drop(labels prometheus.Labels) {
	m.scaleUp.DeletePartialMatch(labels)
	m.failures.DeletePartialMatch(labels)
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.scaleUp.Describe(ch)
	m.failures.Describe(ch)
	for _, d := range []*prometheus.Desc{demandDesc, replicasDesc, backoffDesc} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.scaleUp.Collect(ch)
	m.failures.Collect(ch)
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for key, of := range m.models {
		gauge(demandDesc, float64(of.demand), key.Namespace, key.Name)
		for name, e := range of.entries {
			for state, n := range e.replicas {
				gauge(replicasDesc, float64(n), key.Namespace, key.Name, name, state)
			}
			if left := e.backoff.Sub(m.now()).Seconds(); left > 0 {
				gauge(backoffDesc, left, key.Namespace, key.Name, name)
			}
		}
	}
}
