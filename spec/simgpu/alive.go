package simgpu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ticksPerSecond is the unit of start times in /proc: USER_HZ, 100 on
	// every architecture that Go and Linux share.
	ticksPerSecond = 100
	// ageSlack is how much older than its process a file may look: the clocks
	// behind the two ages are not the same.
	ageSlack = 2 * time.Second
)

// lives remembers when processes began, by their number: what /proc says of a
// process takes longer to ask than all the rest of a look.
type lives struct {
	mu    sync.Mutex
	began map[int]life
}

const mostLives = 4096

// life is one process among those that have had its number.
type life struct {
	inode uint64 // of its pidfd; 0 where the kernel gives all of them the same
	age   time.Duration
	at    time.Time // when it had that age
}

// wroteAlive says whether the process that wrote its file at written lives:
// there is one of that number, it is no zombie, and it is not younger than
// the file.
func (d *Dir) wroteAlive(pid int, written time.Time) bool {
	inode, alive := running(pid)
	d.lives.mu.Lock()
	defer d.lives.mu.Unlock()
	l, known := d.lives.began[pid]
	if !alive {
		delete(d.lives.began, pid)
		return false
	}
	if !known || inode == 0 || l.inode != inode {
		age, alive := processAge(pid)
		if !alive {
			return false
		}
		l = life{inode: inode, age: age, at: time.Now()}
		if d.lives.began == nil || len(d.lives.began) > mostLives { // of most that are gone nobody asks again
			d.lives.began = map[int]life{}
		}
		d.lives.began[pid] = l
	}
	return time.Since(written) <= l.age+time.Since(l.at)+ageSlack
}

// running says whether a process runs, and tells it from others that have had
// its number by the inode of its pidfd, which Linux 6.9 made unique (0 before).
// Where pidfds cannot be had, /proc tells.
func running(pid int) (inode uint64, alive bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return 0, false
	case err != nil:
		return 0, true
	}
	defer func() { _ = unix.Close(fd) }()
	ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(ended, 0); err == nil && n > 0 {
		return 0, false
	}
	var info unix.Stat_t
	if !uniquePidfds() || unix.Fstat(fd, &info) != nil {
		return 0, true
	}
	return info.Ino, true
}

// uniquePidfds says whether pidfds are of the file system pidfs.
var uniquePidfds = sync.OnceValue(func() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.Statfs_t
	return unix.Fstatfs(fd, &info) == nil && info.Type == unix.PID_FS_MAGIC
})

// processAge is for how long the process has lived; alive is false when it is
// gone or a zombie. See proc_pid_stat(5): the state is the first field after
// the command, which stands in parentheses and may hold any byte, and the
// start time, in ticks since boot, is the twentieth.
func processAge(pid int) (age time.Duration, alive bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return 0, false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, false
	}
	started := time.Duration(ticks) * (time.Second / ticksPerSecond)
	return time.Duration(now.Nano()) - started, true
}
