package process

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// shmFolder is where POSIX shared memory and semaphores are files (shm_overview(7)).
const shmFolder = "/dev/shm/"

// shmPrefixes are how engines name their shared memory; a part that no two of them share
// follows. The process that made it removes it, unless it is killed.
var shmPrefixes = []string{
	"psm_", "sem.mp-", // multiprocessing of Python (Lib/multiprocessing/shared_memory.py, synchronize.py)
	"torch_",        // PyTorch, between its processes (torch/csrc/StorageSharing)
	"nccl-",         // NCCL, between the GPUs of a machine
	"vllm_offload_", // vLLM, the KV cache that it offloads: many GiB
	"vllm_ec_",      // vLLM, the encoder cache of multimodal models (ec_shared_region.py): many GiB
	"vllm_engram_",  // vLLM, embeddings that data-parallel replicas share, while they map them (engram.py)
}

// cpuSharedMemory are the names of what the workers of vLLM on CPUs share: a port, their group
// and their rank (cpu_communicator.py, csrc/cpu/shm.cpp).
var cpuSharedMemory = regexp.MustCompile(`^.+-cpushm_[0-9]+$`)

// sharedMemory lists the files of shared memory that processes have mapped. Once these
// processes are killed, no process removes the files.
func sharedMemory(processes []procfs.Stat) []string {
	seen := map[string]bool{}
	for _, p := range processes {
		for line := range strings.Lines(string(procfs.Maps(p.PID))) {
			if at := strings.Index(line, shmFolder); at >= 0 {
				seen[strings.TrimSuffix(line[at:], "\n")] = true
			}
		}
	}
	var out []string
	for path := range seen {
		if isEngines(path) {
			out = append(out, path)
		}
	}
	return out
}

// isEngines reports whether a file is shared memory of the kind that engines make.
func isEngines(path string) bool {
	folder, name := filepath.Split(path)
	return folder == shmFolder && (cpuSharedMemory.MatchString(name) || slices.ContainsFunc(shmPrefixes, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	}))
}

// removeAll removes files that may be gone already.
func removeAll(paths []string) {
	for _, path := range paths {
		_ = os.Remove(path) // gone already, or not ours: a leftover at worst
	}
}
