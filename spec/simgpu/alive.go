package simgpu

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
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

// wroteAlive says whether the process that wrote its file at written lives:
// there is one of that number, it is no zombie, and it is not younger than
// the file.
func wroteAlive(pid int, written time.Time) bool {
	age, alive := processAge(pid)
	return alive && time.Since(written) <= age+ageSlack
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
