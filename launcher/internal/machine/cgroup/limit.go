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

// ErrNoLimit says that the memory of a group cannot be limited: no memory controller
// can be had for it.
var ErrNoLimit = errors.New("no memory controller for the group can be had here")

// LimitMemory has the kernel keep the group to so many bytes, with the files that it
// has read and written as far as they are in main memory: those are dropped first,
// writers wait for that, and only what cannot be dropped gets a process killed. The
// error is ErrNoLimit where there is no memory controller for groups of ours: in mode
// None, on a hierarchy of cgroup v2 whose controllers nobody has given to the
// launcher's own group, or without a memory hierarchy of cgroup v1.
func (g *Group) LimitMemory(bytes int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.driver.limitMemory(g.path, bytes); err != nil {
		return fmt.Errorf("cannot limit the memory of group %q: %w", g.name, err)
	}
	return nil
}

func (none) limitMemory(string, int64) error { return ErrNoLimit }

// limitMemory asks for the controller in the launcher's own folder, which has groups
// and no processes in it, and in no other.
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

// write writes one of the kernel's files, which is there.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
