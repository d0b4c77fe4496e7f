package process

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/process/procfs"
)

// resourceTracker is in the command line of the process that removes the shared
// memory and semaphores of Python's multiprocessing when all that used them
// have ended (Lib/multiprocessing/resource_tracker.py). It alone knows of those
// that no living process has mapped.
const resourceTracker = "multiprocessing.resource_tracker"

// tidyTime bounds what it is given for that.
const tidyTime = time.Second

// killUsers kills what it sees of a tree but resource trackers, and waits for
// these to tidy up and end. Where there is none it does nothing. It is a
// courtesy before the kill of the whole tree, which sees to what goes wrong here.
func killUsers(ctx context.Context, seen []procfs.Stat) {
	var users, trackers []procfs.Stat
	for _, stat := range seen {
		if cmdline, _ := os.ReadFile("/proc/" + strconv.Itoa(stat.PID) + "/cmdline"); strings.Contains(string(cmdline), resourceTracker) {
			trackers = append(trackers, stat)
		} else {
			users = append(users, stat)
		}
	}
	if len(trackers) == 0 {
		return
	}
	members, _ := hold(users)
	for _, m := range members {
		_ = m.signal(syscall.SIGKILL)
	}
	waitAll(ctx, members)
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	members, _ = hold(trackers)
	waitAll(ctx, members)
}
