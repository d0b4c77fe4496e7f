package modelpull

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// What a fetch gives way with: the CPUs, the disk and, where there is not enough of
// it, the memory are for engines first.
const (
	niceness = 10
	oomScore = "1000" // the kernel kills it before any other, see proc_pid_oom_score_adj(5)

	// The lowest of the class best-effort, see ioprio_set(2). Idle would be lower, and
	// a fetch that waits for ever may hold what others wait for in the filesystem.
	ioPriority = 2<<13 | 7
	ioOfThread = 1 // IOPRIO_WHO_PROCESS, which means a thread
)

// lower has the threads of a process, and what they start, give way to others. Threads
// that one makes which was not lowered yet are seen by another look. What the kernel
// refuses is left as it is.
func lower(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(oomScore), 0)
	lowered := map[int]bool{}
	for more := true; more; {
		more = false
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none when it has ended
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || lowered[tid] {
				continue
			}
			lowered[tid], more = true, true
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceness)
			_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioOfThread, uintptr(tid), ioPriority)
		}
	}
}

var errOutOfMemory = errors.New("the kernel has killed modelfetch, which took more memory than it may; what it has fetched stays, to be resumed: raise model_fetch_memory, or set it to 0 for no limit")
