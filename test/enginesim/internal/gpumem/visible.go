package gpumem

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// locate opens the folder and finds the GPU of a local rank.
func locate(path, visible string, rank int) (*simgpu.Dir, simgpu.GPU, error) {
	dir, err := simgpu.Open(path)
	if err != nil {
		return nil, simgpu.GPU{}, fmt.Errorf("cannot open the simulated GPUs: %w", err)
	}
	gpu, err := pick(dir.GPUs(), visible, rank)
	return dir, gpu, err
}

// pick finds the GPU of a local rank among the visible ones: indices in PCI
// order, or UUIDs, as the CUDA runtime reads CUDA_VISIBLE_DEVICES. What follows
// a device that does not exist is not visible either.
func pick(gpus []simgpu.GPU, visible string, rank int) (simgpu.GPU, error) {
	chosen := gpus
	if visible != "" {
		chosen = nil
		for name := range strings.SplitSeq(visible, ",") {
			i := find(gpus, strings.TrimSpace(name))
			if i < 0 {
				break
			}
			chosen = append(chosen, gpus[i])
		}
	}
	if rank >= len(chosen) {
		return simgpu.GPU{}, vllmerr.New("torch.AcceleratorError: CUDA error: invalid device ordinal (local rank %d of %d visible devices)", rank, len(chosen))
	}
	return chosen[rank], nil
}

func find(gpus []simgpu.GPU, name string) int {
	for i, g := range gpus {
		if n, err := strconv.Atoi(name); err == nil && n == g.Index && !g.MIG() || g.UUID == name {
			return i
		}
	}
	return -1
}

// GiB writes bytes as vLLM does: GiB, rounded to two places.
func GiB(n uint64) string { return decimal(math.Round(float64(n)/(1<<30)*100) / 100) }

// decimal writes a number as Python does.
func decimal(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
