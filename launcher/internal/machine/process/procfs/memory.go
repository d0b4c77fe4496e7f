package procfs

import "github.com/prometheus/procfs"

// PSS is the main memory that a process holds, in bytes, each page divided among
// the processes that share it (proc_pid_smaps(5), smaps_rollup); 0 when it cannot
// be told. The kernel walks every page table of the process for it and keeps its
// memory map locked meanwhile, which takes seconds for a large one: do not ask for
// a process that anybody waits for.
func PSS(pid int) uint64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	sum, err := process.ProcSMapsRollup()
	if err != nil {
		return 0
	}
	return sum.Pss
}
