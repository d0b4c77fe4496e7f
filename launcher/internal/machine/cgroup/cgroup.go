// Package cgroup gives each instance its own control group, if the machine allows that.
// Then the whole process tree of an instance can be listed and killed, even processes
// that changed their session, parent or environment.
//
// The groups are below the group that the launcher itself runs in. The package enables
// no controller there, so the rule of cgroup v2 against processes in inner groups does
// not apply. The exception is the memory controller in the launcher's folder, if the
// memory of a group is to be limited.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Mode says how groups are kept.
type Mode string

const (
	// Auto takes the first of V2, V1 and None that works.
	Auto Mode = "auto"
	// V2 is cgroup v2; on a hybrid machine, its hierarchy without controllers.
	V2 Mode = "v2"
	// V1 is the freezer, pids or memory hierarchy of cgroup v1.
	V1 Mode = "v1"
	// None keeps no groups: every Group is empty and its calls do nothing.
	None Mode = "none"
)

// ErrBusy is returned by Create when the group exists and holds processes.
var ErrBusy = errors.New("the group already has processes")

// Options of a Manager.
type Options struct {
	// Mode to use; empty means Auto. A mode other than Auto that does not work is an error.
	Mode Mode
	// Parent is the path, from the mount point of the hierarchy, of the group below
	// which the launcher's folder is made. Empty: the group this process is in, for
	// each hierarchy.
	Parent string
	// Name of the launcher's folder, one path element, for example hotseat-MARK.
	Name string
	// Logger logs which mode was chosen, and why better modes were not.
	Logger *slog.Logger
}

// driver is one way of keeping groups. Paths are as in /proc/PID/cgroup,
// relative to the root of the (first) hierarchy.
type driver interface {
	// base is the path of the launcher's folder.
	base() string
	// create makes the folder, and the folders above it, unless it exists. fresh
	// says that the folder is new, so that no process can be in it.
	create(path string) (fresh bool, err error)
	// list names the folders directly below path.
	list(path string) ([]string, error)
	// procs are the processes in the group and the groups below it.
	procs(path string) ([]int, error)
	// kill sends SIGKILL to all processes of the group and the groups below it.
	kill(path string) error
	// fork calls start so that the process that start forks is born in the group.
	fork(path string, start func(*syscall.SysProcAttr) error) error
	// remove removes the folder and those below it once no process is left.
	remove(ctx context.Context, path string) error
	// dirs are the folders of a group, one in each hierarchy.
	dirs(path string) []string
	// limitMemory limits the main memory of the group's processes and files. The error is
	// ErrNoLimit if there is no controller for that.
	limitMemory(path string, bytes int64) error
	// oomKills counts the group's processes that the kernel killed for want of
	// memory; false: no controller counts.
	oomKills(path string) (uint64, bool)
	// groupOf is the path of the group that a process is in.
	groupOf(pid int) (string, error)
}

// Manager holds the launcher's folder of groups.
type Manager struct {
	driver  driver
	oomFile string
}

// Open tries which mode works, and makes the launcher's folder.
func Open(opts Options) (*Manager, error) {
	if !validName(opts.Name) {
		return nil, fmt.Errorf("cannot open cgroups: invalid name %q", opts.Name)
	}
	mounts, err := readMounts()
	if err != nil {
		return nil, fmt.Errorf("cannot open cgroups: %w", err)
	}
	var tried []error
	for _, mode := range candidates(opts.Mode) {
		for _, d := range mounts.drivers(mode, opts) {
			if err := probe(d); err != nil {
				tried = append(tried, fmt.Errorf("cannot use cgroup mode %s below %s: %w", mode, d.base(), err))
				continue
			}
			opts.Logger.Info("keeping a control group for each instance", "mode", mode, "folder", d.base())
			if len(tried) > 0 {
				opts.Logger.Info("other cgroup modes do not work here", "reason", errors.Join(tried...))
			}
			return &Manager{driver: d, oomFile: mounts.oomFile()}, nil
		}
	}
	tried = append(tried, fmt.Errorf("this machine has no cgroup hierarchy for mode %q", opts.Mode))
	return nil, errors.Join(tried...)
}

// probe makes a group and forks a process into it. The process ends at once, because its
// program cannot exist. probe fails on every obstacle: a read-only mount, missing
// permissions, a threaded parent or a filter of system calls.
func probe(d driver) error {
	group := path.Join(d.base(), fmt.Sprintf("probe-%d", os.Getpid()))
	if _, err := d.create(group); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := d.fork(group, func(attr *syscall.SysProcAttr) error {
		_, _, err := syscall.StartProcess("/dev/null/none", []string{"none"}, &syscall.ProcAttr{Sys: attr})
		return err
	})
	if errors.Is(err, syscall.ENOTDIR) {
		return d.remove(ctx, group)
	}
	_ = d.remove(ctx, group)
	_ = d.remove(ctx, d.base())
	return err
}

func candidates(mode Mode) []Mode {
	if mode == Auto || mode == "" {
		return []Mode{V2, V1, None}
	}
	return []Mode{mode}
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 200 && !strings.ContainsAny(name, "/\n\x00")
}

// folderPrefix keeps the folder of a group apart from the kernel's own files.
const folderPrefix = "i-"

// Create makes the group of an instance, or takes over an existing empty group. The error
// is ErrBusy if the group has processes.
func (m *Manager) Create(name string) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("cannot create group: invalid name %q", name)
	}
	g := m.Group(name)
	fresh, err := m.driver.create(g.path)
	if err != nil {
		return nil, fmt.Errorf("cannot create group %q: %w", name, err)
	}
	if fresh {
		return g, nil
	}
	pids, err := g.Procs()
	if err != nil {
		return nil, err
	}
	if len(pids) > 0 {
		return nil, fmt.Errorf("cannot create group %q: %w", name, ErrBusy)
	}
	return g, nil
}

// Group is the group of an instance in the launcher's folder, which need not exist.
func (m *Manager) Group(name string) *Group {
	return &Group{name: name, path: path.Join(m.driver.base(), folderPrefix+name), driver: m.driver}
}

// GroupOf is the group of the instance that the process is in, also when an earlier
// launcher kept it below another parent, or an earlier release in a folder of another
// name. For a process that is in no such group it is Group(name).
func (m *Manager) GroupOf(name string, pid int) *Group {
	g := m.Group(name)
	where, err := m.driver.groupOf(pid)
	if err == nil && path.Base(where) == path.Base(g.path) && kind(path.Dir(where)) == kind(m.driver.base()) {
		g.path = where
	}
	return g
}

// kind is the name of a launcher's folder without what tells one launcher from another:
// hotseat of hotseat-MARK.
func kind(folder string) string {
	kind, _, _ := strings.Cut(path.Base(folder), "-")
	return kind
}

// List names the instances that have a group in the launcher's folder.
func (m *Manager) List() ([]string, error) {
	folders, err := m.driver.list(m.driver.base())
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("cannot list groups: %w", err)
	}
	var names []string
	for _, folder := range folders {
		if name, ok := strings.CutPrefix(folder, folderPrefix); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// OOMKills counts the processes that the kernel killed for want of memory in this
// process's own group and below it. In a container, that is the container's group. ok is
// false if no memory controller counts them.
func (m *Manager) OOMKills() (n uint64, ok bool) {
	return readKey(m.oomFile, "oom_kill")
}

// Close removes the launcher's empty folders. Groups with processes stay, and the next
// launcher finds them.
func (m *Manager) Close() error {
	names, err := m.List()
	if err != nil {
		return err
	}
	over, cancel := context.WithCancel(context.Background())
	cancel() // groups that have processes now are left alone
	var errs []error
	for _, name := range names {
		errs = append(errs, notCanceled(m.Group(name).Remove(over)))
	}
	return errors.Join(append(errs, notCanceled(m.driver.remove(over, m.driver.base())))...)
}

func notCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Group is the control group of one instance. The calls of one Group value
// exclude each other.
type Group struct {
	name   string // of the instance
	path   string // from the mount point of the (first) hierarchy; without meaning in mode None
	driver driver
	mu     sync.Mutex
}

// Procs are the ids of the processes in the group and below it; none when the
// group is gone.
func (g *Group) Procs() ([]int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pids, err := g.driver.procs(g.path)
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes of group %q: %w", g.name, err)
	}
	return pids, nil
}

// Kill sends SIGKILL to every process in the group and below it. In mode V2 on Linux 5.14
// and later that is one step, and no fork escapes it
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup.kill). Elsewhere, call Kill
// until Procs is empty. A group that is gone is no error.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.driver.kill(g.path); err != nil {
		return fmt.Errorf("cannot kill group %q: %w", g.name, err)
	}
	return nil
}

// Start calls fork once, with the attributes by which the forked process is born in the
// group. Mode V1 has no such attribute: there, fork runs on an OS thread that is inside
// the group meanwhile, so it must fork on the goroutine that calls it. Start returns the
// error of fork unchanged.
func (g *Group) Start(fork func(*syscall.SysProcAttr) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.driver.fork(g.path, fork)
}

// Doors opens the files by which a process enters the group. A process that writes "0" to
// each file moves into the group, and its later children are born there. In mode None
// there are no files. The caller closes them.
func (g *Group) Doors() ([]*os.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var doors []*os.File
	for _, dir := range g.driver.dirs(g.path) {
		door, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
		if err != nil {
			for _, d := range doors {
				_ = d.Close() // nothing is buffered
			}
			return nil, fmt.Errorf("cannot open group %q: %w", g.name, err)
		}
		doors = append(doors, door)
	}
	return doors, nil
}

// OOMKills counts the processes of this group that the kernel killed for want of memory.
// ok is false if no memory controller counts for this group alone.
func (g *Group) OOMKills() (n uint64, ok bool) {
	return g.driver.oomKills(g.path)
}

// Remove waits until the group is empty, and removes it; the folder that an earlier release
// kept it in too, once nothing is in that. If ctx ends before that, Remove returns the
// context's error. A group that is gone is no error.
func (g *Group) Remove(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.driver.remove(ctx, g.path); err != nil {
		return fmt.Errorf("cannot remove group %q: %w", g.name, err)
	}
	if folder := path.Dir(g.path); folder != g.driver.base() && kind(folder) == kind(g.driver.base()) {
		for _, dir := range g.driver.dirs(folder) {
			_ = unix.Rmdir(dir) // others may be in it
		}
	}
	return nil
}
