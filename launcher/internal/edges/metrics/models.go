package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// WatchModels adds the metrics of the model store: list is asked for it at each
// scrape. A second call panics.
func (m *Metrics) WatchModels(list func() (launcherapi.ModelList, error)) {
	m.registry.MustRegister(modelCollector{list})
}

type modelCollector struct {
	list func() (launcherapi.ModelList, error)
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
	list, err := c.list()
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
