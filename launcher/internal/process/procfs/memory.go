package procfs

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// PSS is the main memory that a process holds, in bytes, each page shared out
// among those that share it (proc_pid_smaps(5), smaps_rollup); 0 when it cannot
// be told. The kernel walks every page table of the process for it and keeps its
// memory map locked meanwhile, which takes seconds for a large one: no question
// for a process that anybody waits for.
func PSS(pid int) uint64 {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "Pss:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}
