package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
	"github.com/moby/sys/mountinfo"
)

// mounts are the mounted hierarchies, and where this process is in each.
type mounts struct {
	v2 []hierarchy
	v1 map[string]hierarchy // by controller
}

// hierarchy is one mounted cgroup hierarchy.
type hierarchy struct {
	mount string // the mount point
	root  string // the group that is mounted there
	own   string // the group this process is in, from the mount point
}

func (h hierarchy) dir(group string) string { return filepath.Join(h.mount, group) }

// fromMount turns a path as in /proc/PID/cgroup into a path from the mount point. A group
// that is not below the mounted group becomes the mount point itself. That happens in
// containers that share the host's view of cgroup v1.
func (h hierarchy) fromMount(group string) string {
	if h.root == "/" {
		return group
	}
	if rest, ok := strings.CutPrefix(group+"/", h.root+"/"); ok {
		return path.Join("/", rest)
	}
	return "/"
}

// readMounts reads /proc/self/mountinfo and /proc/self/cgroup, see proc_pid_mountinfo(5) and cgroups(7).
func readMounts() (mounts, error) {
	own1, own2, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return mounts{}, fmt.Errorf("cannot read the groups of this process: %w", err)
	}
	table, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return mounts{}, fmt.Errorf("cannot read the mounts: %w", err)
	}
	return hierarchies(table, own1, own2), nil
}

// hierarchies finds the hierarchies in a table of mounts. This process is in the groups
// own1 of cgroup v1, by controller, and in the group own2 of cgroup v2.
func hierarchies(table []*mountinfo.Info, own1 map[string]string, own2 string) mounts {
	m := mounts{v1: map[string]hierarchy{}}
	for _, mount := range table {
		h := hierarchy{root: mount.Root, mount: mount.Mountpoint}
		if mount.FSType == "cgroup2" {
			h.own = h.fromMount(own2)
			m.v2 = append(m.v2, h)
			continue
		}
		for _, controller := range strings.Split(mount.VFSOptions, ",") {
			if own, ok := own1[controller]; ok {
				h.own = h.fromMount(own)
				m.v1[controller] = h
			}
		}
	}
	return m
}

// drivers are the drivers that could serve a mode, best first.
func (m mounts) drivers(mode Mode, opts Options) []driver {
	below := func(h hierarchy) string {
		if opts.Parent != "" {
			return path.Join("/", opts.Parent, opts.Name)
		}
		return path.Join(h.own, opts.Name)
	}
	var found []driver
	switch mode {
	case V2:
		for _, h := range m.v2 {
			found = append(found, &v2{hierarchy: h, folder: below(h)})
		}
	case V1:
		for _, names := range [][]string{{"freezer", "memory"}, {"freezer"}, {"pids"}, {"memory"}} {
			if d := newV1(m.v1, names, below); d != nil {
				found = append(found, d)
			}
		}
	case None:
		found = append(found, none{})
	case Auto: // candidates gives modes in its place
	}
	return found
}

// oomFile is the file that counts the deaths for want of memory in this process's
// group: memory.events of cgroup v2 in the nearest group that has one,
// memory.oom_control of v1 otherwise.
func (m mounts) oomFile() string {
	for _, h := range m.v2 {
		for group := h.own; ; group = path.Dir(group) {
			file := filepath.Join(h.dir(group), "memory.events")
			if _, ok := readKey(file, "oom_kill"); ok {
				return file
			}
			if group == "/" || group == "." {
				break
			}
		}
	}
	if h, ok := m.v1["memory"]; ok {
		return filepath.Join(h.dir(h.own), "memory.oom_control")
	}
	return ""
}

// readKey reads one number of a flat keyed file ("key value" lines).
func readKey(file, key string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) == 2 && fields[0] == key {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// folders names the folders in dir.
func folders(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
