package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Live is asked at each scrape for the present instances, GPUs and revision.
type Live interface {
	List() ([]launcherapi.Instance, uint64)
	GPUs() launcherapi.GPUList
}

type liveCollector struct {
	live       Live
	preloaders func() launcherapi.PreloaderList
	stalled    func() time.Time
}

var (
	instancesDesc = prometheus.NewDesc("hotseat_instances", "Instances by state.", []string{"state"}, nil)
	inFlightDesc  = prometheus.NewDesc("hotseat_requests_in_flight", "Inference requests in flight at the engine.", []string{"instance"}, nil)
	heldDesc      = prometheus.NewDesc("hotseat_requests_held", "Inference requests held until the instance is awake.", []string{"instance"}, nil)
	gpuBytesDesc  = prometheus.NewDesc("hotseat_gpu_memory_bytes", "GPU memory in bytes by holder: the id of an instance, or _total, _free, _foreign (other processes) and _reserved.", []string{"gpu", "holder", "state"}, nil)
	hostBytesDesc = prometheus.NewDesc("hotseat_host_sleeper_bytes", "Main memory in bytes that sleeping instances hold.", nil, nil)
	queuedDesc    = prometheus.NewDesc("hotseat_swaps_queued", "Swaps that wait for their turn.", nil, nil)
	preloadDesc   = prometheus.NewDesc("hotseat_preloaders", "Preloaders (processes with a loaded engine, to fork from), by state.", []string{"state"}, nil)
	stalledDesc   = prometheus.NewDesc("hotseat_state_disk_stalled_seconds", "Seconds since the disk of the state folder stopped answering; 0: it answers.", nil, nil)
	activeDesc    = prometheus.NewDesc("hotseat_swaps_active", "Swaps that are running.", nil, nil)
)

func (c liveCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, inFlightDesc, heldDesc, gpuBytesDesc, hostBytesDesc, queuedDesc, activeDesc, preloadDesc, stalledDesc} {
		ch <- d
	}
}

func (c liveCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	instances, _ := c.live.List()
	byState := map[string]int{}
	for _, i := range instances {
		byState[i.State]++
		gauge(inFlightDesc, float64(i.InFlight), i.InstanceID)
		gauge(heldDesc, float64(i.Held), i.InstanceID)
	}
	for _, s := range launcher.States {
		gauge(instancesDesc, float64(byState[string(s)]), string(s))
	}
	seconds := 0.0
	if since := c.stalled(); !since.IsZero() {
		seconds = time.Since(since).Seconds()
	}
	gauge(stalledDesc, seconds)
	gpus := c.live.GPUs()
	preloaders := map[string]int{"loading": 0, "ready": 0, "waiting": 0}
	for _, l := range c.preloaders().Preloaders {
		preloaders[l.State]++
	}
	for state, n := range preloaders {
		gauge(preloadDesc, float64(n), state)
	}
	gauge(hostBytesDesc, float64(gpus.HostSleepers))
	gauge(queuedDesc, float64(gpus.QueuedSwaps))
	gauge(activeDesc, float64(gpus.ActiveSwaps))
	for _, g := range gpus.GPUs {
		gauge(gpuBytesDesc, float64(g.MemoryTotalBytes), g.UUID, "_total", "")
		gauge(gpuBytesDesc, float64(g.MemoryFreeBytes), g.UUID, "_free", "")
		gauge(gpuBytesDesc, float64(g.ForeignBytes), g.UUID, "_foreign", "")
		gauge(gpuBytesDesc, float64(g.ReservedBytes), g.UUID, "_reserved", "")
		for _, h := range append(g.Awake, g.Sleepers...) {
			gauge(gpuBytesDesc, float64(h.Bytes), g.UUID, h.InstanceID, h.State)
		}
	}
}
