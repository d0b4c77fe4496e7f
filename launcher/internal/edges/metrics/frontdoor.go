package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var waitingDesc = prometheus.NewDesc("hotseat_front_door_requests_waiting", "Requests that wait at the front door, by model of the configuration; other models: all others together.", []string{"model"}, nil)

// doorCollector asks at each scrape how many requests wait, by model.
type doorCollector func() map[string]int

func (c doorCollector) Describe(ch chan<- *prometheus.Desc) { ch <- waitingDesc }

func (c doorCollector) Collect(ch chan<- prometheus.Metric) {
	for model, n := range c() {
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n), model)
	}
}

// WatchFrontDoor adds the metrics of the requests that wait at the front door. A second call
// panics.
func (m *Metrics) WatchFrontDoor(waiting func() map[string]int) {
	m.registry.MustRegister(doorCollector(waiting))
}

// FrontDoorRequest counts a request at the front door that is over.
func (m *Metrics) FrontDoorRequest(outcome string) { m.doorRequests.WithLabelValues(outcome).Inc() }

// FrontDoorWait notes how long a request waited at the front door for its model.
func (m *Metrics) FrontDoorWait(outcome string, took time.Duration) {
	m.doorWaits.WithLabelValues(outcome).Observe(took.Seconds())
}

// FrontDoorTransition counts a change of what is awake.
func (m *Metrics) FrontDoorTransition(kind, outcome string) {
	m.doorChanges.WithLabelValues(kind, outcome).Inc()
}
