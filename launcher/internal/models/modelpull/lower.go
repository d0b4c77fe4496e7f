package modelpull

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The priorities of modelfetch. Engines get CPUs, disk and memory first.
const (
	niceness = 10
	oomScore = "1000" // the kernel kills modelfetch before any other process, see proc_pid_oom_score_adj(5)

	// The lowest priority of the class best-effort, see ioprio_set(2). The class idle
	// would be lower. But a fetch that never gets the disk could hold locks of the
	// filesystem for ever.
	ioPriority = 2<<13 | 7
	ioOfThread = 1 // IOPRIO_WHO_PROCESS, which means a thread
)

// lowerPriority lowers the priority of a process's threads; new threads inherit it. It
// repeats the look until it finds no new thread, since a thread may start another one
// before its own priority is lowered. It ignores errors of the kernel.
func lowerPriority(pid int) {
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

var errOutOfMemory = errors.New("the kernel killed modelfetch, because it exceeded its memory limit; the fetched files stay, and the next pull resumes from them: raise model_fetch_memory, or set it to 0 for no limit")
