package recorder

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

func dead(h Holder) bool {
	started, ok := startOf(h.PID)
	return !ok || started != h.Started
}

// startOf reads a process's start time, field 22 of /proc/<pid>/stat (proc(5)),
// in clock ticks since boot. A zombie is not alive.
func startOf(pid int) (uint64, bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The second field is the name in brackets, and may hold anything.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, false
	}
	started, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return started, err == nil
}
