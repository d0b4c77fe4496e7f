package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// WatchModels adds the metrics of the model store: list is asked for it at each
// scrape. A second call panics.
func (m *Metrics) WatchModels(list func() (launcherapi.ModelList, error)) {
	m.registry.MustRegister(modelCollector{list, make(chan struct{}, 1)})
}

type modelCollector struct {
	list   func() (launcherapi.ModelList, error)
	asking chan struct{} // full while the store is asked
}

// answerTime is how long a scrape waits for the disk of the store.
const answerTime = 2 * time.Second

var errStoreSilent = errors.New("the disk of the model store does not answer")

// ask lists the models. While the disk does not answer, one call waits for it, and scrapes
// go on without.
func (c modelCollector) ask() (launcherapi.ModelList, error) {
	type answer struct {
		list launcherapi.ModelList
		err  error
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case c.asking <- struct{}{}:
	case <-timer.C:
		return launcherapi.ModelList{}, errStoreSilent
	}
	answered := make(chan answer, 1)
	go func() {
		list, err := c.list()
		answered <- answer{list, err}
		<-c.asking
	}()
	select {
	case a := <-answered:
		return a.list, a.err
	case <-timer.C:
		return launcherapi.ModelList{}, errStoreSilent
	}
}

var (
	modelsDesc     = prometheus.NewDesc("hotseat_models", "Models of the model store, by state.", []string{"state"}, nil)
	modelBytesDesc = prometheus.NewDesc("hotseat_model_store_bytes", "Size of the files in the model store in bytes, each counted once.", nil, nil)
	modelLimitDesc = prometheus.NewDesc("hotseat_model_store_limit_bytes", "Limit of the model store in bytes; 0 for none.", nil, nil)
)

func (c modelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{modelsDesc, modelBytesDesc, modelLimitDesc} {
		ch <- d
	}
}

func (c modelCollector) Collect(ch chan<- prometheus.Metric) {
	list, err := c.ask()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(modelsDesc, err)
		return
	}
	states := map[string]int{launcherapi.ModelDownloading: 0, launcherapi.ModelReady: 0, launcherapi.ModelPartial: 0, launcherapi.ModelDamaged: 0, launcherapi.ModelFailed: 0}
	for _, m := range list.Models {
		states[m.State]++
	}
	for state, n := range states {
		ch <- prometheus.MustNewConstMetric(modelsDesc, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(modelBytesDesc, prometheus.GaugeValue, float64(list.UsedBytes))
	ch <- prometheus.MustNewConstMetric(modelLimitDesc, prometheus.GaugeValue, float64(list.LimitBytes))
}
