package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// v1 keeps each group in one or two hierarchies of cgroup v1. The first lists and
// kills the processes; a memory hierarchy beside it counts deaths for want of
// memory.
type v1 struct {
	names       []cgroup1.Name
	hierarchies map[cgroup1.Name]hierarchy
	folders     map[cgroup1.Name]string // the launcher's folder in each
}

// newV1 is nil when one of the hierarchies is missing or not mounted under its name.
func newV1(mounted map[string]hierarchy, names []string, below func(hierarchy) string) *v1 {
	d := &v1{hierarchies: map[cgroup1.Name]hierarchy{}, folders: map[cgroup1.Name]string{}}
	for _, name := range names {
		h, ok := mounted[name]
		if !ok || filepath.Base(h.mount) != name {
			return nil
		}
		n := cgroup1.Name(name)
		d.names = append(d.names, n)
		d.hierarchies[n], d.folders[n] = h, below(h)
	}
	return d
}

func (d *v1) first() hierarchy { return d.hierarchies[d.names[0]] }
func (d *v1) base() string     { return d.folders[d.names[0]] }

// subsystems is the library's view of our hierarchies.
func (d *v1) subsystems() ([]cgroup1.Subsystem, error) {
	var all []cgroup1.Subsystem
	for _, name := range d.names {
		root := filepath.Dir(d.hierarchies[name].mount)
		switch name {
		case cgroup1.Freezer:
			all = append(all, cgroup1.NewFreezer(root))
		case cgroup1.Pids:
			all = append(all, cgroup1.NewPids(root))
		default:
			all = append(all, cgroup1.NewMemory(root))
		}
	}
	return all, nil
}

// in returns the path of a group in one of the hierarchies. The launcher's folder may have
// a different path in each.
func (d *v1) in(name cgroup1.Name, group string) string {
	if !within(group, d.base()) {
		return group
	}
	return path.Join(d.folders[name], strings.TrimPrefix(group, d.base()))
}

func (d *v1) paths(group string) cgroup1.Path {
	return func(name cgroup1.Name) (string, error) { return d.in(name, group), nil }
}

func (d *v1) home(name cgroup1.Name) (string, error) { return d.hierarchies[name].own, nil }

func (d *v1) load(paths cgroup1.Path) (cgroup1.Cgroup, error) {
	return cgroup1.Load(paths, cgroup1.WithHierarchy(d.subsystems))
}

func (d *v1) create(group string) (fresh bool, err error) {
	_, err = cgroup1.New(d.paths(group), &specs.LinuxResources{}, cgroup1.WithHierarchy(d.subsystems))
	return false, err // cgroup1.New does not tell
}

func (d *v1) list(group string) ([]string, error) { return folders(d.first().dir(group)) }

// procs leaves this process out: while it forks, one of its threads is inside.
func (d *v1) procs(group string) ([]int, error) {
	pids, err := members(d.first().dir(group))
	if gone(err) {
		return nil, nil
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() }), err
}

func (d *v1) kill(group string) error {
	kill := func() error { return killEach(d, group) }
	if d.names[0] != cgroup1.Freezer {
		return kill()
	}
	return killFrozen(filepath.Join(d.first().dir(group), "freezer.state"), "FROZEN", "THAWED", kill)
}

// fork moves a thread into the group, forks there, and moves the thread back: in cgroup
// v1, a child is born in the group of the thread that forks it. If the thread cannot be
// moved back, its goroutine ends while locked to it, so that it is not used again.
func (d *v1) fork(group string, start func(*syscall.SysProcAttr) error) error {
	inside, err := d.load(d.paths(group))
	if err != nil {
		return err
	}
	home, err := d.load(d.home)
	if err != nil {
		return err
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		self := cgroup1.Process{Pid: unix.Gettid()}
		err := inside.AddTask(self)
		if err == nil {
			err = start(&syscall.SysProcAttr{})
		}
		if back := home.AddTask(self); back != nil {
			result <- errors.Join(err, fmt.Errorf("cannot leave the group: %w", back))
			return
		}
		runtime.UnlockOSThread()
		result <- err
	}()
	return <-result
}

func (d *v1) dirs(group string) []string {
	var all []string
	for _, name := range d.names {
		all = append(all, d.hierarchies[name].dir(d.in(name, group)))
	}
	return all
}

func (d *v1) remove(ctx context.Context, group string) error {
	var errs []error
	for _, name := range d.names {
		errs = append(errs, removeWhenEmpty(ctx, d.hierarchies[name].dir(d.in(name, group)), waitBriefly))
	}
	return errors.Join(errs...)
}

func (d *v1) oomKills(group string) (uint64, bool) {
	if !slices.Contains(d.names, cgroup1.Memory) {
		return 0, false
	}
	dir := d.hierarchies[cgroup1.Memory].dir(d.in(cgroup1.Memory, group))
	return readKey(filepath.Join(dir, "memory.oom_control"), "oom_kill")
}

func (d *v1) groupOf(pid int) (string, error) {
	groups, _, err := cgroups.ParseCgroupFileUnified(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	return d.first().fromMount(groups[string(d.names[0])]), nil
}
