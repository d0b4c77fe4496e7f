package procfs

import "github.com/prometheus/procfs"

// PSS returns the main memory that a process holds, in bytes, or 0 if that cannot be
// read. Each page is divided among the processes that share it (proc_pid_smaps(5),
// smaps_rollup). The kernel walks every page table of the process and keeps its memory
// map locked meanwhile. That takes seconds for a large process, so do not call PSS for a
// process that serves requests.
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
