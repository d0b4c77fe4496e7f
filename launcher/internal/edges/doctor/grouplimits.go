package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Engines run in control groups below the one that the launcher runs in, so each
// limit of that group, and of those above it, is for the launcher and all its
// engines together.

// groupLimit is the lowest limit of some resource that the control groups of this
// process have.
type groupLimit[T uint64 | float64] struct {
	value T
	file  string // that sets the limit; empty: there is none
}

// lower takes a limit over when it is lower.
func (l *groupLimit[T]) lower(value T, file string) {
	if l.file == "" || value < l.value {
		l.value, l.file = value, file
	}
}

// memoryLimit is in bytes: memory.max of cgroup v2
// (https://docs.kernel.org/admin-guide/cgroup-v2.html), memory.limit_in_bytes of v1.
func memoryLimit(proc, root string) (limit groupLimit[uint64]) {
	for _, g := range ownGroups(proc, root, "memory") {
		file := g.file("memory.max", "memory.limit_in_bytes")
		if n, err := strconv.ParseUint(content(file), 10, 64); err == nil { // cgroup v2 writes "max" for no limit
			limit.lower(n, file)
		}
	}
	return limit
}

// cpuLimit is in CPUs: the time that a group may run in each period, by that period.
// cgroup v2 has both in cpu.max, v1 has them in cpu.cfs_quota_us and
// cpu.cfs_period_us (https://docs.kernel.org/scheduler/sched-bwc.html).
func cpuLimit(proc, root string) (limit groupLimit[float64]) {
	for _, g := range ownGroups(proc, root, "cpu") {
		file := g.file("cpu.max", "cpu.cfs_quota_us")
		fields := strings.Fields(content(file))
		if !g.v2 {
			fields = append(fields, content(g.file("", "cpu.cfs_period_us")))
		}
		if len(fields) != 2 {
			continue
		}
		// Without a limit, the quota is "max" in cgroup v2 and -1 in v1.
		quota, errQuota := strconv.ParseUint(fields[0], 10, 64)
		period, errPeriod := strconv.ParseUint(fields[1], 10, 64)
		if errQuota == nil && errPeriod == nil && period > 0 {
			limit.lower(float64(quota)/float64(period), file)
		}
	}
	return limit
}

// group is the folder of a control group.
type group struct {
	dir string
	v2  bool
}

// file is the path of one of the group's files, which has another name in cgroup v1.
func (g group) file(v2, v1 string) string {
	if g.v2 {
		return filepath.Join(g.dir, v2)
	}
	return filepath.Join(g.dir, v1)
}

// ownGroups are the groups that this process is in, and all above those: in cgroup
// v2, and in v1's hierarchy of the controller. Not all of them need exist, and what a
// container sees as the root may have limits.
func ownGroups(proc, root, controller string) []group {
	var groups []group
	for line := range strings.Lines(content(filepath.Join(proc, "self/cgroup"))) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}
		base, v2 := root, fields[1] == ""
		switch {
		case v2:
		case slices.Contains(strings.Split(fields[1], ","), controller):
			base = filepath.Join(root, controller)
		default:
			continue
		}
		for path := fields[2]; ; path = filepath.Dir(path) {
			groups = append(groups, group{dir: filepath.Join(base, path), v2: v2})
			if path == "/" || path == "." {
				break
			}
		}
	}
	return groups
}

// content is what a file holds, without white space around it; nothing for a file
// that cannot be read.
func content(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
