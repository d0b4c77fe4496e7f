package devmem

import "hotseat.dev/hotseat/launcher/internal/machine/process/procfs"

// HostMemory is the main memory, in bytes, that an instance's processes hold. root
// is the first of them. inherited is the anonymous memory of the preloader that
// each of them was forked with; 0 where the engine was started by exec.
func (m *Meter) HostMemory(root int, pids []int, inherited uint64) uint64 {
	var others []procfs.Resident
	for _, pid := range pids {
		if pid != root {
			others = append(others, m.opts.Processes.Resident(pid))
		}
	}
	return hostMemory(m.opts.Processes.Resident(root), others, inherited)
}

// hostMemory adds up the memory of an engine's processes from counts that the
// kernel keeps. The counts do not tell which memory is shared, but which processes
// share is known:
//
//	anonymous  each process less what it was forked with: a preloader's
//	files      those of the API server, which are libraries, and what each other
//	           process has beyond: it maps the same, and a Worker pinned buffers
//	shared     all of it
func hostMemory(root procfs.Resident, others []procfs.Resident, inherited uint64) uint64 {
	sum := beyond(root.Anon, inherited) + root.File + root.Shmem
	for _, r := range others {
		sum += beyond(r.Anon, inherited) + beyond(r.File, root.File) + r.Shmem
	}
	return sum
}

// beyond is how much a is more than b; 0 where it is less.
func beyond(a, b uint64) uint64 { return a - min(a, b) }
