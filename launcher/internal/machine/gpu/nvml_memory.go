package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/procfs"
)

// notForThisDevice are the answers of NVML to a call that the driver or the device does
// not support.
var notForThisDevice = []nv.Return{
	nv.ERROR_NOT_SUPPORTED,
	nv.ERROR_FUNCTION_NOT_FOUND,
	nv.ERROR_INVALID_ARGUMENT,
	nv.ERROR_ARGUMENT_VERSION_MISMATCH,
}

func (n *nvml) Memory(uuid string) (m Memory, err error) {
	err = n.with(uuid, func(h handle) error {
		if m, err = n.memory(h.device); err != nil {
			return err
		}
		m.Processes, m.ProcessesKnown = processes(h.device)
		return nil
	})
	if err != nil {
		return Memory{}, fmt.Errorf("cannot read the memory of GPU %s: %w", uuid, err)
	}
	return m, nil
}

// memory calls version 2 of the function if the driver has it, else version 1. A driver that
// supports neither for a GPU is that of a machine whose GPU and processors share the main
// memory: GB10 (DGX Spark), Jetson. Only version 2 reports the
// memory reserved for the driver (nvmlMemory_v2_t: total = reserved + used + free);
// version 1 counts that memory as used.
func (n *nvml) memory(device nv.Device) (Memory, error) {
	if n.has("nvmlDeviceGetMemoryInfo_v2") {
		info, ret := device.GetMemoryInfo_v2()
		if ret == nv.SUCCESS {
			total := info.Total - min(info.Total, info.Reserved)
			return ofFree(total, info.Free), nil
		}
		if !slices.Contains(notForThisDevice, ret) {
			return Memory{}, failed("nvmlDeviceGetMemoryInfo_v2", ret)
		}
	}
	info, ret := device.GetMemoryInfo()
	if ret == nv.ERROR_NOT_SUPPORTED {
		return mainMemory()
	}
	if ret != nv.SUCCESS {
		return Memory{}, failed("nvmlDeviceGetMemoryInfo", ret)
	}
	return ofFree(info.Total, info.Free), nil
}

// mainMemory is the memory of the machine. As CUDA does on such machines, it counts as free
// what the kernel can make available without swapping, see proc_meminfo(5).
func mainMemory() (Memory, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Memory{}, fmt.Errorf("cannot read the main memory, which the GPU shares: %w", err)
	}
	info, err := proc.Meminfo()
	if err != nil {
		return Memory{}, fmt.Errorf("cannot read the main memory, which the GPU shares: %w", err)
	}
	if info.MemTotalBytes == nil || info.MemAvailableBytes == nil {
		return Memory{}, errors.New("cannot read the main memory, which the GPU shares: /proc/meminfo has no MemTotal or MemAvailable")
	}
	return ofFree(*info.MemTotalBytes, *info.MemAvailableBytes), nil
}

func ofFree(total, free uint64) Memory {
	free = min(free, total)
	return Memory{TotalBytes: total, FreeBytes: free, UsedBytes: total - free}
}

// processes lists the processes that hold memory; known is false when the driver
// gives no list, or does not say how much one of them holds.
func processes(device nv.Device) (list []Process, known bool) {
	infos, ret := device.GetComputeRunningProcesses()
	if ret != nv.SUCCESS {
		return nil, false
	}
	held := map[int]uint64{}
	for _, info := range infos {
		if info.UsedGpuMemory == math.MaxUint64 { // NVML_VALUE_NOT_AVAILABLE
			return nil, false
		}
		held[int(info.Pid)] += info.UsedGpuMemory
	}
	for pid, bytes := range held {
		list = append(list, Process{PID: pid, Bytes: bytes})
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return list, true
}
