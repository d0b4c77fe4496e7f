package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// Memory is the main memory of a group with a limit, in bytes.
type Memory struct {
	Limit, Used int64
	// InactiveFile are pages of files that were read once, which the kernel drops first.
	// MappedFile are pages of files that processes have mapped.
	InactiveFile, MappedFile int64
}

// memoryFiles are the names of a controller's files, and of its keys in memory.stat.
type memoryFiles struct{ limit, used, inactive, mapped string }

// The names of cgroup v2, and those of v1 that count the groups below, too; see
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux.
var (
	memoryOfV2 = memoryFiles{"memory.max", "memory.current", "inactive_file", "file_mapped"}
	memoryOfV1 = memoryFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_mapped_file"}
)

// LimitedMemory returns the memory of each group with a limit that this process is in. It
// sees only groups that the mounts show.
func LimitedMemory() ([]Memory, error) {
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	return mounts.limitedMemory()
}

func (m mounts) limitedMemory() ([]Memory, error) {
	var all []Memory
	for _, h := range m.v2 {
		limited, err := h.limitedMemory(memoryOfV2)
		if err != nil {
			return nil, err
		}
		all = append(all, limited...)
	}
	if h, ok := m.v1["memory"]; ok {
		limited, err := h.limitedMemory(memoryOfV1)
		if err != nil {
			return nil, err
		}
		all = append(all, limited...)
	}
	return all, nil
}

func (h hierarchy) limitedMemory(names memoryFiles) ([]Memory, error) {
	var all []Memory
	for group := h.own; ; group = path.Dir(group) {
		m, limited, err := readMemory(h.dir(group), names)
		if err != nil {
			return nil, err
		}
		if limited {
			all = append(all, m)
		}
		if group == "/" || group == "." {
			return all, nil
		}
	}
}

// readMemory reads the memory of a group; limited is false where it has no limit.
func readMemory(dir string, names memoryFiles) (m Memory, limited bool, err error) {
	m.Limit, err = readBytes(filepath.Join(dir, names.limit))
	if errors.Is(err, os.ErrNotExist) { // the root, or a group without the controller
		return m, false, nil
	}
	if err != nil || m.Limit >= noLimit {
		return m, false, err
	}
	if m.Used, err = readBytes(filepath.Join(dir, names.used)); err != nil {
		return m, false, err
	}
	stat := filepath.Join(dir, "memory.stat")
	for key, value := range map[string]*int64{names.inactive: &m.InactiveFile, names.mapped: &m.MappedFile} {
		n, ok := readKey(stat, key)
		if !ok {
			return m, false, fmt.Errorf("%s has no %s", stat, key)
		}
		*value = int64(n) //nolint:gosec // no machine has 8 EiB
	}
	return m, true, nil
}

// noLimit is the least value that means no limit: v1 then writes the greatest number of
// pages that a counter can hold, in bytes.
const noLimit = math.MaxInt64 / 2

func readBytes(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	word := string(bytes.TrimSpace(text))
	if word == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read %s: %w", file, err)
	}
	return n, nil
}
