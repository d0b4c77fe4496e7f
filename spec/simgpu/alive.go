package simgpu

import (
	"bytes"
	"fmt"
	"os"
	"slices"
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

// lives keeps, by GPU, the processes that were seen to hold memory of it: what
// /proc says of a process takes longer to ask than all the rest of a look.
type lives struct {
	mu sync.Mutex
	of map[string]map[int]*life
}

// life is a process that holds memory. Its pidfd is of that process alone,
// whoever has its number next.
type life struct {
	pidfd int
	began time.Time // at the latest
}

// Close gives back what was kept open of the processes that hold memory. The Dir
// can still be used.
func (d *Dir) Close() error {
	d.lives.mu.Lock()
	defer d.lives.mu.Unlock()
	for uuid := range d.lives.of {
		d.lives.keep(uuid, nil)
	}
	return nil
}

// ended says whether the process has ended; a zombie has.
func (l *life) ended() bool {
	fds := []unix.PollFd{{Fd: int32(l.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// wroteAlive says whether the process that wrote its file at written lives:
// there is one of that number, it is no zombie, and it is not younger than
// the file. The lock of lives is held.
func (d *Dir) wroteAlive(uuid string, pid int, written time.Time) bool {
	p := d.lives.find(uuid, pid)
	return p != nil && !written.Before(p.began)
}

// find gives the process of that number if it lives, and nil otherwise. The lock
// is held.
func (l *lives) find(uuid string, pid int) *life {
	if l.of == nil {
		l.of = map[string]map[int]*life{}
	}
	known := l.of[uuid]
	if p := known[pid]; p != nil {
		if !p.ended() {
			return p
		}
		l.drop(uuid, pid)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	p := &life{pidfd: pidfd}
	age, alive := processAge(pid)
	if !alive || p.ended() { // else pidfd and age are of one process
		_ = unix.Close(pidfd)
		return nil
	}
	p.began = time.Now().Add(-age - ageSlack)
	if known == nil {
		known = map[int]*life{}
		l.of[uuid] = known
	}
	known[pid] = p
	return p
}

// drop gives a pidfd back. The lock is held.
func (l *lives) drop(uuid string, pid int) {
	_ = unix.Close(l.of[uuid][pid].pidfd)
	delete(l.of[uuid], pid)
}

// keep drops all processes but those. The lock is held.
func (l *lives) keep(uuid string, holders []Holder) {
	for pid := range l.of[uuid] {
		if !slices.ContainsFunc(holders, func(h Holder) bool { return h.PID == pid }) {
			l.drop(uuid, pid)
		}
	}
}

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
