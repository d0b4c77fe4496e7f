package process

import (
	"context"
	"strings"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// resourceTracker is in the command line of Python's resource tracker. That process
// removes the shared memory and semaphores of multiprocessing when all their users have
// ended (Lib/multiprocessing/resource_tracker.py). It alone knows of shared memory that
// no living process has mapped.
const resourceTracker = "multiprocessing.resource_tracker"

// tidyTime is the time that a resource tracker gets for that.
const tidyTime = time.Second

// killUsers kills the processes seen of a tree except resource trackers, and waits
// for the trackers to tidy up and end. Without a tracker it does nothing. Errors do
// not matter here: the kill of the whole tree follows.
func killUsers(ctx context.Context, seen []procfs.Stat) {
	var users, trackers []procfs.Stat
	for _, stat := range seen {
		if strings.Contains(strings.Join(procfs.Arguments(stat.PID), " "), resourceTracker) {
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
