package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// census assigns each living process of the machine to at most one instance. The links
// count in this order: control group, session, parent, and last the marks in the
// environment. So a process that one instance forked for another belongs to the other.
// Marks count in processes of the launcher's own user alone: another user can write them
// into the environment of a process.
type census struct {
	living   map[int]procfs.Stat // without this process and its ancestors
	owner    map[int]string      // instance by process
	sessions map[int]string      // instance by session
	// blurred is true if a process ended after it was listed and before it was read.
	// That process may have belonged to a tree, and may have forked another process
	// that was not listed.
	blurred bool
	// hidden is true if a process of the launcher's own user was in the middle of execve(2),
	// or hangs, and showed no environment. It may belong to a tree.
	hidden bool
	err    error // why a part could not be read; processes may be missing then
}

// census looks at all of /proc, but reads the environment only of processes
// that are not older than since (clock ticks since boot).
func (h *Host) census(since uint64) *census {
	c := &census{living: map[int]procfs.Stat{}, owner: map[int]string{}, sessions: map[int]string{}}
	stats, vanished, err := procfs.All()
	c.blurred = vanished
	if err != nil {
		c.err = fmt.Errorf("cannot list processes: %w", err)
		return c
	}
	for _, stat := range stats {
		if stat.Alive() {
			c.living[stat.PID] = stat
		} else if stat.StartTime >= since {
			c.blurred = true
		}
	}
	for pid := os.Getpid(); pid > 0; {
		parent := c.living[pid].PPID
		delete(c.living, pid)
		pid = parent
	}
	c.err = h.byGroup(c)
	h.byRoot(c)
	c.spread()
	c.err = errors.Join(c.err, h.byMark(c, since))
	c.spread()
	return c
}

// of returns the processes of one instance, the oldest first.
func (c *census) of(name string) []procfs.Stat {
	var found []procfs.Stat
	for pid, owner := range c.owner {
		if owner == name {
			found = append(found, c.living[pid])
		}
	}
	slices.SortFunc(found, func(a, b procfs.Stat) int {
		return cmp.Or(cmp.Compare(a.StartTime, b.StartTime), cmp.Compare(a.PID, b.PID))
	})
	return found
}

func (c *census) own(pid int, name string) {
	stat, ok := c.living[pid]
	if !ok || c.owner[pid] != "" {
		return
	}
	c.owner[pid] = name
	if c.sessions[stat.Session] == "" && !c.outside(stat.Session) {
		c.sessions[stat.Session] = name
	}
}

// outside reports whether a session cannot be that of a tree. This process's own
// session cannot: each child is in it for the first moments of its life.
func (c *census) outside(session int) bool {
	own, err := unix.Getsid(0)
	return err != nil || session == own || session == 0
}

func (h *Host) byGroup(c *census) error {
	groups, err := h.groups()
	if err != nil {
		return err
	}
	for name, group := range groups {
		pids, err := group.Procs()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			c.own(pid, name)
		}
	}
	return nil
}

// groups returns the control groups of the known processes, and those in the
// launcher's folder.
func (h *Host) groups() (map[string]*cgroup.Group, error) {
	names, err := h.opts.Cgroups.List()
	if err != nil {
		return nil, err
	}
	groups := map[string]*cgroup.Group{}
	for _, name := range names {
		groups[name] = h.opts.Cgroups.Group(name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.processes {
		if p != nil {
			groups[name] = p.group
		}
	}
	return groups, nil
}

// byRoot assigns the sessions of the known roots, and the processes that were in their
// trees when their stop began. If another process has the id of a root now, no process
// of the root's session is left: the kernel does not reuse an id that still names a
// session.
func (h *Host) byRoot(c *census) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.processes {
		if p == nil {
			continue
		}
		for _, stat := range p.seen {
			if now, ok := c.living[stat.PID]; ok && still(now, stat) {
				c.own(stat.PID, name)
			}
		}
		root := procfs.Stat{PID: p.id.PID, Session: p.id.PID, StartTime: p.id.StartTime}
		if holder, ok := c.living[p.id.PID]; ok && (!still(holder, root) || holder.Hangs && p.ended()) {
			continue
		}
		c.sessions[p.id.PID] = name
		c.own(p.id.PID, name)
	}
}

// still reports whether the process that has an id now is the one that had it before. While
// a process hangs, nobody can read its start time. Then it has to be a process of the
// launcher's own user, in the same session.
func still(now, before procfs.Stat) bool {
	if !now.Hangs && !before.Hangs {
		return now.StartTime == before.StartTime
	}
	own, err := procfs.BelongsTo(now.PID, os.Geteuid())
	return err == nil && own && now.Session == before.Session
}

func (h *Host) byMark(c *census, since uint64) error {
	for pid, stat := range c.living {
		if c.owner[pid] != "" || stat.StartTime < since && !stat.Hangs {
			continue
		}
		env, err := c.environ(pid)
		if err != nil {
			return fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
		}
		name, err := Marks{Own: h.opts.Mark, Earlier: h.opts.Earlier}.Tree(env, stat.Session, func() (bool, error) {
			return procfs.BelongsTo(pid, os.Geteuid())
		})
		switch {
		case errors.Is(err, os.ErrNotExist):
			c.blurred = true
		case err != nil:
			return err
		case name != "":
			c.own(pid, name)
		}
	}
	return nil
}

// Marks are the marks of a launcher's processes.
type Marks struct {
	Own     string
	Earlier map[string]EarlierTree // as in Options
}

// Tree returns the name of the tree that a process belongs to by the marks in its environment;
// empty: it belongs to no tree of this launcher. isOwn reports whether the process is one of
// the launcher's own user; Tree asks only if the marks name a tree.
func (m Marks) Tree(env []string, session int, isOwn func() (bool, error)) (string, error) {
	name := m.named(env, session)
	if name == "" {
		return "", nil
	}
	if own, err := isOwn(); err != nil || !own {
		return "", err
	}
	return name, nil
}

func (m Marks) named(env []string, session int) string {
	for _, variable := range env {
		name, ok := strings.CutPrefix(variable, instanceMark)
		if !ok || !isName(name) {
			continue
		}
		tree, early := m.Earlier[name]
		early = early && (tree.Root.PID == 0 || tree.Root.PID == session) && slices.Contains(env, launcherMark+tree.Mark)
		if early || slices.Contains(env, launcherMark+m.Own) {
			return name
		}
	}
	return ""
}

// Mark returns the launcher's mark in an environment; empty: there is none.
func Mark(env []string) string {
	for _, variable := range env {
		if mark, ok := strings.CutPrefix(variable, launcherMark); ok {
			return mark
		}
	}
	return ""
}

// environ reads the environment of a process, and notes why it is empty.
func (c *census) environ(pid int) (env []string, err error) {
	for range 4 { // the process may be in execve(2) at each look at its environment, and out of it at the look at its state
		env, err = procfs.Environ(pid)
		hangs := errors.Is(err, procfs.ErrHangs)
		if err != nil && !hangs || len(env) > 0 {
			return env, err
		}
		stat, err := procfs.Read(pid)
		if hangs = hangs || errors.Is(err, procfs.ErrHangs); !hangs && (err != nil || !stat.Alive()) {
			c.blurred = true
			return nil, nil //nolint:nilerr // it has ended
		}
		var folder unix.Stat_t
		_ = unix.Stat(fmt.Sprintf("/proc/%d", pid), &folder) // if the process has ended by now, it does not matter what this says
		if (stat.Exec || hangs) && int(folder.Uid) == os.Geteuid() {
			c.hidden = true
			return nil, nil
		}
	}
	return nil, nil
}

// spread gives the sessions and children of owned processes to their owner.
func (c *census) spread() {
	for changed := true; changed; {
		changed = false
		for pid, stat := range c.living {
			if c.owner[pid] != "" {
				continue
			}
			name := c.sessions[stat.Session]
			if name == "" {
				name = c.owner[stat.PPID]
			}
			if name != "" {
				c.own(pid, name)
				changed = true
			}
		}
	}
}

// Owners returns the name of the tree that each living process of the machine belongs
// to, by pid. It leaves out processes of no tree.
func (h *Host) Owners() (map[int]string, error) {
	c := h.census(0)
	return c.owner, c.err
}

// findTime bounds how long Find waits for processes that are in the middle of execve(2).
const findTime = time.Second

// Found is a process tree that carries this launcher's mark.
type Found struct {
	Name string
	Root ID // zero when the root has ended; without a start time while it hangs, see Adopt
	PIDs []int
}

// Find returns every process tree that carries this launcher's mark, in its environment
// or by its control group, sorted by name. The root of a tree is its oldest session
// leader whose parent is not in the tree. If the leader of a session in the tree has
// ended, the tree has lost its root. Find looks again for at most findTime while processes
// are in the middle of execve(2).
func (h *Host) Find() ([]Found, error) {
	c := h.census(0)
	for until := time.Now().Add(findTime); c.err == nil && c.hidden && time.Now().Before(until); {
		c = h.census(0)
	}
	if c.err != nil {
		return nil, c.err
	}
	names := map[string]bool{}
	for _, name := range c.owner {
		names[name] = true
	}
	var found []Found
	for _, name := range slices.Sorted(maps.Keys(names)) {
		tree := Found{Name: name, Root: h.root(c, name)}
		for _, stat := range c.of(name) {
			tree.PIDs = append(tree.PIDs, stat.PID)
		}
		slices.Sort(tree.PIDs)
		found = append(found, tree)
	}
	return found, nil
}

func (h *Host) root(c *census, name string) ID {
	var root ID
	for _, stat := range c.of(name) {
		if _, ok := c.living[stat.Session]; !ok {
			return ID{}
		}
		if root.PID == 0 && stat.PID == stat.Session && c.owner[stat.PPID] != name {
			root = ID{PID: stat.PID, StartTime: stat.StartTime, BootID: h.bootID}
		}
	}
	return root
}
