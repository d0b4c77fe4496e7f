package doctor

import (
	"context"
	"fmt"
)

func checkCPUs(_ context.Context, e *examination) []Result {
	return one(judgeCPUs(e.cpus, cpuLimit(e.proc, e.cgroupRoot), len(e.gpus.devices)))
}

// judgeCPUs: an engine on N GPUs has at least 2 + N processes that are busy, its API
// server, its EngineCore and a worker for each GPU, and vLLM's documentation asks
// for as many CPUs (docs/configuration/optimization.md, Minimum CPU Requirements).
func judgeCPUs(cpus int, limit groupLimit[float64], gpus int) Result {
	r := Result{Name: "cpus", Status: OK, Finding: fmt.Sprintf("%d for this process and its engines", cpus)}
	usable := float64(cpus)
	if limit.file != "" && limit.value < usable {
		usable = limit.value
		r.Finding = fmt.Sprintf("%.1f of %d for this process and its engines (limit in %s)", usable, cpus, limit.file)
	}
	if wanted := 2 + gpus; gpus > 0 && usable < float64(wanted) {
		r.Status = Warn
		r.Remedy = fmt.Sprintf("an engine on all %d GPUs needs %d CPUs or more; raise CPUQuota= of the unit, docker run --cpus, or the CPU limit of the Pod", gpus, wanted)
		if limit.file == "" {
			r.Remedy = fmt.Sprintf("an engine on all %d GPUs needs %d CPUs or more, and will be slower with fewer", gpus, wanted)
		}
	}
	return r
}
