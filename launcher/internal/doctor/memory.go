package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"hotseat.dev/hotseat/launcher"
)

func checkHostMemory(_ context.Context, e *examination) []Result {
	total, err := e.hostMemory()
	if err != nil {
		return one(Result{Name: "host memory", Status: Warn, Finding: err.Error()})
	}
	var onDevices uint64
	for _, d := range e.gpus.devices {
		onDevices += d.MemoryTotalBytes
	}
	return one(judgeHostMemory(total, onDevices))
}

// hostMemory is what this process and its engines may have, in bytes.
func (e *examination) hostMemory() (uint64, error) {
	total, err := memoryTotal(e.proc)
	if limit, ok := cgroupLimit(e.proc, e.cgroupRoot); ok {
		total = min(total, limit)
	}
	return total, err
}

// judgeHostMemory: a sleeper at level 1 keeps as much of the host's memory as
// its weights took on the device, so a full set of sleepers needs about as
// much as the GPUs have.
func judgeHostMemory(host, devices uint64) Result {
	r := Result{Name: "host memory", Status: OK, Finding: fmt.Sprintf("%s for this process and its engines", launcher.BytesText(host))}
	if devices == 0 {
		return r
	}
	r.Finding += fmt.Sprintf("; the GPUs have %s", launcher.BytesText(devices))
	if host < devices {
		r.Status = Warn
		r.Remedy = "bound the sleepers by budgets.max_host_sleeper_bytes, or let them sleep at level 2"
	}
	return r
}

// memoryTotal is the memory of the machine, in bytes.
func memoryTotal(proc string) (uint64, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0, fmt.Errorf("cannot tell the host's memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return 0, fmt.Errorf("cannot tell the host's memory: %w", err)
	}
	if info.MemTotalBytes == nil {
		return 0, fmt.Errorf("cannot tell the host's memory: %s/meminfo has no MemTotal", proc)
	}
	return *info.MemTotalBytes, nil
}

// cgroupLimit is the least memory limit, in bytes, of the groups that this
// process is in: of cgroup v2 (memory.max of the group and those above it), or
// of v1's memory hierarchy. ok is false where there is none.
func cgroupLimit(proc, root string) (limit uint64, ok bool) {
	content, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}
		base, file := root, "memory.max"
		switch fields[1] {
		case "":
		case "memory":
			base, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := fields[2]; ; dir = filepath.Dir(dir) {
			if n, err := readNumber(filepath.Join(base, dir, file)); err == nil && (!ok || n < limit) {
				limit, ok = n, true
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
	return limit, ok
}

// readNumber reads a file that holds a number; "max" is an error.
func readNumber(file string) (uint64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64)
}
