package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup1"
)

// ErrNoLimit says that the memory of a group cannot be limited, because there is no
// memory controller for it.
var ErrNoLimit = errors.New("no memory controller is available for the launcher's groups")

// LimitMemory limits the main memory of the group, including the files that it has read
// and written and that are still in main memory. At the limit, the kernel drops pages of
// files first, and writers wait for that. It kills a process only if no more pages can be
// dropped.
//
// The error is ErrNoLimit if the launcher has no memory controller for its groups: in
// mode None, in cgroup v2 if the controller was not delegated to the launcher's own
// group, and in cgroup v1 without a memory hierarchy.
func (g *Group) LimitMemory(bytes int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.driver.limitMemory(g.path, bytes); err != nil {
		return fmt.Errorf("cannot limit the memory of group %q: %w", g.name, err)
	}
	return nil
}

func (none) limitMemory(string, int64) error { return ErrNoLimit }

// limitMemory enables the controller in the launcher's own folder and in no other folder.
// That folder has groups in it, but no processes.
func (d *v2) limitMemory(group string, bytes int64) error {
	above := d.dir(path.Dir(group))
	offered, err := os.ReadFile(filepath.Join(above, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(string(offered)), "memory") {
		return ErrNoLimit
	}
	if err := write(filepath.Join(above, "cgroup.subtree_control"), "+memory"); err != nil {
		return err
	}
	return write(filepath.Join(d.dir(group), "memory.max"), strconv.FormatInt(bytes, 10))
}

func (d *v1) limitMemory(group string, bytes int64) error {
	if !slices.Contains(d.names, cgroup1.Memory) {
		return ErrNoLimit
	}
	dir := d.hierarchies[cgroup1.Memory].dir(d.in(cgroup1.Memory, group))
	return write(filepath.Join(dir, "memory.limit_in_bytes"), strconv.FormatInt(bytes, 10))
}

// write writes to an existing file of the kernel.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
