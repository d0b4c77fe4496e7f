package doctor

import (
	"context"
	"fmt"

	"github.com/prometheus/procfs"

	"hotseat.dev/hotseat/launcher"
)

func checkHostMemory(_ context.Context, e *examination) []Result {
	total, err := memoryTotal(e.proc)
	if err != nil {
		return one(Result{Name: "main memory", Status: Warn, Finding: err.Error()})
	}
	var onDevices uint64
	for _, d := range e.gpus.devices {
		onDevices += d.MemoryTotalBytes
	}
	return one(judgeHostMemory(total, memoryLimit(e.proc, e.cgroupRoot), onDevices))
}

// usableMemory is what this process and its engines may have, in bytes; 0: unknown.
func (e *examination) usableMemory() uint64 {
	total, err := memoryTotal(e.proc)
	if err != nil {
		return 0 // checkHostMemory tells why
	}
	if limit := memoryLimit(e.proc, e.cgroupRoot); limit.file != "" {
		return min(total, limit.value)
	}
	return total
}

// judgeHostMemory: a sleeper at level 1 keeps as much of the host's memory as
// its weights took on the device, so a full set of sleepers needs about as
// much as the GPUs have.
func judgeHostMemory(total uint64, limit groupLimit[uint64], devices uint64) Result {
	r := Result{Name: "main memory", Status: OK, Finding: fmt.Sprintf("%s for this process and its engines", launcher.BytesText(total))}
	usable := total
	if limit.file != "" && limit.value < total {
		usable = limit.value
		r.Finding = fmt.Sprintf("%s of %s for this process and its engines (limit in %s)", launcher.BytesText(usable), launcher.BytesText(total), limit.file)
	}
	if devices == 0 {
		return r
	}
	r.Finding += fmt.Sprintf("; the GPUs have %s", launcher.BytesText(devices))
	if usable < devices {
		r.Status = Warn
		r.Remedy = "limit sleeping instances by --budgets-max-host-sleeper-bytes, or put them to sleep at level 2"
	}
	return r
}

// memoryTotal is the memory of the machine, in bytes.
func memoryTotal(proc string) (uint64, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0, fmt.Errorf("cannot read the size of main memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return 0, fmt.Errorf("cannot read the size of main memory: %w", err)
	}
	if info.MemTotalBytes == nil {
		return 0, fmt.Errorf("cannot read the size of main memory: %s/meminfo has no MemTotal", proc)
	}
	return *info.MemTotalBytes, nil
}
