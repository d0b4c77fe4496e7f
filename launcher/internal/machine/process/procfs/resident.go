package procfs

import (
	"fmt"
	"strconv"
	"strings"
)

// Resident is the resident main memory of a process, in bytes, by kind (RssAnon,
// RssFile and RssShmem of proc_pid_status(5)). Pages that are shared with other
// processes count whole. The kernel keeps these counts: reading them walks no page
// table and takes no lock of the process's memory.
type Resident struct {
	Anon  uint64 // the process's own, or shared with the one it was forked from until either writes
	File  uint64 // files, libraries above all, and memory that drivers map
	Shmem uint64
}

// ReadResident reads the counts of a process; all zero when the process has ended.
func ReadResident(pid int) Resident {
	var r Resident
	buf := make([]byte, 4096)
	n, err := readInto(fmt.Sprintf("/proc/%d/status", pid), buf)
	if err != nil {
		return r
	}
	for line := range strings.Lines(string(buf[:n])) {
		name, value, _ := strings.Cut(line, ":")
		into, ok := map[string]*uint64{"RssAnon": &r.Anon, "RssFile": &r.File, "RssShmem": &r.Shmem}[name]
		if !ok {
			continue
		}
		kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Resident{}
		}
		*into = kib << 10
	}
	return r
}
