package cgroup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) {
	switch os.Getenv("CGROUP_TEST_CHILD") {
	case "wait":
		time.Sleep(5 * time.Minute)
		os.Exit(99)
	case "eat":
		eat()
	}
	goleak.VerifyTestMain(m)
}

// eat takes memory until it is killed.
func eat() {
	var held [][]byte
	for range 64 {
		block := make([]byte, 4<<20)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	os.Exit(len(held))
}

// modes that keep groups.
var modes = []Mode{V2, V1}

var opened int

func open(t *testing.T, mode Mode) *Manager {
	t.Helper()
	opened++
	name := fmt.Sprintf("hotseat-test-%d-%d", os.Getpid(), opened)
	m, err := Open(Options{Mode: mode, Name: name, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Skipf("NOT TESTED: this machine does not offer cgroup mode %s: %v", mode, err)
	}
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.NoDirExists(t, directory(m, m.driver.base()), "Close must leave nothing behind")
	})
	return m
}

// directory of a group in its first hierarchy.
func directory(m *Manager, group string) string {
	switch d := m.driver.(type) {
	case *v2:
		return d.dir(group)
	case *v1:
		return d.first().dir(group)
	}
	return "/nonexistent"
}

// start starts this test binary in the group; it is reaped at the end.
func start(t *testing.T, g *Group, role string) (pid int) {
	t.Helper()
	err := g.Start(func(attr *syscall.SysProcAttr) (err error) {
		pid, _, err = syscall.StartProcess("/proc/self/exe", []string{"child"}, &syscall.ProcAttr{
			Env: append(os.Environ(), "CGROUP_TEST_CHILD="+role), Files: []uintptr{0, 1, 2}, Sys: attr,
		})
		return err
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	})
	return pid
}

// reap waits for a child and gives its wait status.
func reap(t *testing.T, pid int) syscall.WaitStatus {
	t.Helper()
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, 0, nil)
	require.NoError(t, err)
	return status
}

func TestAChildIsBornInsideItsGroupAndTheLauncherStaysOutside(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			before, err := os.ReadFile("/proc/self/cgroup")
			require.NoError(t, err)
			g, err := m.Create("a")
			require.NoError(t, err)
			pid := start(t, g, "wait")

			pids, err := g.Procs()
			require.NoError(t, err)
			require.Equal(t, []int{pid}, pids)
			where, err := m.driver.groupOf(pid)
			require.NoError(t, err)
			require.Equal(t, g.path, where)
			threads, err := filepath.Glob("/proc/self/task/*/cgroup")
			require.NoError(t, err)
			for _, thread := range threads {
				after, err := os.ReadFile(thread)
				if err == nil {
					require.Equal(t, string(before), string(after))
				}
			}
		})
	}
}

func TestKillReachesEveryProcessOfTheGroupAndNoOther(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			a, err := m.Create("a")
			require.NoError(t, err)
			ab, err := m.Create("ab")
			require.NoError(t, err)
			first, second, other := start(t, a, "wait"), start(t, a, "wait"), start(t, ab, "wait")

			require.NoError(t, a.Kill())
			require.Equal(t, syscall.SIGKILL, reap(t, first).Signal())
			require.Equal(t, syscall.SIGKILL, reap(t, second).Signal())
			pids, err := ab.Procs()
			require.NoError(t, err)
			require.Equal(t, []int{other}, pids)
			require.NoError(t, a.Remove(t.Context()))

			require.NoError(t, ab.Kill())
			reap(t, other)
		})
	}
}

func TestWhereTheKernelKillsNoGroupItIsFrozenAndKilledOneByOne(t *testing.T) {
	m := open(t, V2)
	g, err := m.Create("a")
	require.NoError(t, err)
	first, second := start(t, g, "wait"), start(t, g, "wait")
	require.NoError(t, m.driver.(*v2).killFrozen(g.path))
	require.Equal(t, syscall.SIGKILL, reap(t, first).Signal())
	require.Equal(t, syscall.SIGKILL, reap(t, second).Signal())
	require.NoError(t, g.Remove(t.Context()))
	require.NoError(t, m.driver.(*v2).killFrozen(g.path), "a group that is gone")
}

func TestAForkThatFailsGivesItsOwnErrorAndLeavesTheGroupEmpty(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			g, err := m.Create("a")
			require.NoError(t, err)
			err = g.Start(func(attr *syscall.SysProcAttr) error {
				_, _, err := syscall.StartProcess("/nonexistent", []string{"x"}, &syscall.ProcAttr{Sys: attr})
				return err
			})
			require.Equal(t, syscall.ENOENT, err)
			require.NoError(t, g.Remove(t.Context()))
		})
	}
}

func TestRemoveWaitsUntilTheGroupIsEmpty(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			g, err := m.Create("a")
			require.NoError(t, err)
			pid := start(t, g, "wait")
			require.NoError(t, os.Mkdir(filepath.Join(directory(m, g.path), "below"), 0o755))

			short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, g.Remove(short), context.DeadlineExceeded)

			removed := make(chan error)
			go func() { removed <- m.Group("a").Remove(t.Context()) }()
			if mode == V2 {
				require.Eventually(t, watchesFiles, patience.Wait(), time.Millisecond)
			}
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			require.NoError(t, <-removed)
			require.NoDirExists(t, directory(m, g.path))
			require.NoError(t, g.Remove(t.Context()), "a group that is gone")
		})
	}
}

// watchesFiles says whether this process has an inotify descriptor.
func watchesFiles() bool {
	links, _ := filepath.Glob("/proc/self/fd/*")
	return slices.ContainsFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		return err == nil && strings.Contains(target, "inotify")
	})
}

func TestTheLauncherIsNeverListedNotEvenWhileItForks(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			g, err := m.Create("a")
			require.NoError(t, err)
			var pids []int
			require.NoError(t, m.driver.fork(g.path, func(*syscall.SysProcAttr) (err error) {
				pids, err = m.driver.procs(g.path)
				return err
			}))
			require.Empty(t, pids)
		})
	}
}

func TestAGroupThatIsGoneHasNoProcessesAndNothingToKill(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			g := m.Group("never-made")
			pids, err := g.Procs()
			require.NoError(t, err)
			require.Empty(t, pids)
			require.NoError(t, g.Kill())
		})
	}
}

func TestCreateTakesOverAnEmptyGroupAndRefusesOneInUse(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			_, err := m.Create("a")
			require.NoError(t, err)
			g, err := m.Create("a")
			require.NoError(t, err)
			pid := start(t, g, "wait")
			_, err = m.Create("a")
			require.ErrorIs(t, err, ErrBusy)
			require.NoError(t, g.Kill())
			reap(t, pid)
		})
	}
}

func TestNamesThatAreNoFolderAreRefused(t *testing.T) {
	m := open(t, None)
	for _, name := range []string{"", ".", "..", "a/b", "a\nb", strings.Repeat("x", 201)} {
		_, err := m.Create(name)
		require.Error(t, err, "%q", name)
		_, err = Open(Options{Name: name, Logger: slog.New(slog.DiscardHandler)})
		require.Error(t, err, "%q", name)
	}
}

func TestTheNextLauncherFindsTheGroupsThatHoldProcesses(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			for _, name := range []string{"tasks", "cgroup.procs", "empty"} { // names of the kernel's own files do no harm
				_, err := m.Create(name)
				require.NoError(t, err)
			}
			g, err := m.Create("a")
			require.NoError(t, err)
			pid := start(t, g, "wait")
			require.NoError(t, m.Close())

			next, err := Open(Options{Mode: mode, Name: path.Base(m.driver.base()), Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			names, err := next.List()
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, names)
			pids, err := next.Group("a").Procs()
			require.NoError(t, err)
			require.Equal(t, []int{pid}, pids)
			require.NoError(t, next.Group("a").Kill())
			reap(t, pid)
			require.NoError(t, next.Close())
		})
	}
}

func TestAGroupBelowAnotherParentIsFoundByItsProcess(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			name := path.Base(m.driver.base())
			parent := path.Join(path.Dir(m.driver.base()), name+"-parent")
			before, err := Open(Options{Mode: mode, Parent: parent, Name: name, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			g, err := before.Create("a")
			require.NoError(t, err)
			pid := start(t, g, "wait")

			require.Equal(t, g.path, m.GroupOf("a", pid).path)
			require.Equal(t, m.Group("b").path, m.GroupOf("b", pid).path, "not the group of another name")
			require.NoError(t, m.GroupOf("a", pid).Kill())
			reap(t, pid)
			require.NoError(t, before.Close())
			require.NoError(t, before.driver.remove(t.Context(), parent))
		})
	}
}

// An earlier release kept the groups in a folder of another name.
func TestGroupOfAnEarlierReleaseIsFoundAndRemovedWithItsFolder(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			m := open(t, mode)
			earlier := path.Join(path.Dir(m.driver.base()), fmt.Sprintf("hotseat-earlier-%d", os.Getpid()))
			other := strings.Replace(earlier, "hotseat", "other", 1)
			var groups []*Group
			for _, folder := range []string{path.Join(earlier, "i-a"), path.Join(earlier, "i-b"), path.Join(other, "i-a")} {
				groups = append(groups, &Group{name: "a", path: folder, driver: m.driver})
				_, err := m.driver.create(folder)
				require.NoError(t, err)
			}
			a, b, elsewhere := start(t, groups[0], "wait"), start(t, groups[1], "wait"), start(t, groups[2], "wait")
			require.Equal(t, m.Group("a").path, m.GroupOf("a", elsewhere).path, "not that of another program")
			for name, pid := range map[string]int{"a": a, "b": b} {
				g := m.GroupOf(name, pid)
				require.Equal(t, path.Join(earlier, "i-"+name), g.path)
				require.DirExists(t, directory(m, earlier))
				require.NoError(t, g.Kill())
				reap(t, pid)
				require.NoError(t, g.Remove(t.Context()))
				require.NoDirExists(t, directory(m, g.path))
			}
			require.NoDirExists(t, directory(m, earlier))
			require.NoError(t, groups[2].Kill())
			reap(t, elsewhere)
			require.NoError(t, groups[2].Remove(t.Context()))
			require.DirExists(t, directory(m, other), "it is not the launcher's")
			require.NoError(t, m.driver.remove(t.Context(), other))
		})
	}
}

func TestDeathsForWantOfMemoryAreCounted(t *testing.T) {
	m := open(t, V1)
	d := m.driver.(*v1)
	if !slices.Contains(d.names, "memory") {
		t.Skip("NOT TESTED: no writable memory hierarchy of cgroup v1")
	}
	g, err := m.Create("a")
	require.NoError(t, err)
	before, ok := g.OOMKills()
	require.True(t, ok)
	limit := filepath.Join(d.hierarchies["memory"].dir(d.in("memory", g.path)), "memory.limit_in_bytes")
	require.NoError(t, os.WriteFile(limit, []byte("64M"), 0))
	require.Equal(t, syscall.SIGKILL, reap(t, start(t, g, "eat")).Signal())
	after, ok := g.OOMKills()
	require.True(t, ok)
	require.Equal(t, before+1, after)
}

func TestModeNoneKeepsNothingAndRefusesNothing(t *testing.T) {
	m := open(t, None)
	require.IsType(t, none{}, m.driver)
	g, err := m.Create("a")
	require.NoError(t, err)
	pid := start(t, g, "wait")
	pids, err := g.Procs()
	require.NoError(t, err)
	require.Empty(t, pids)
	require.NoError(t, g.Kill())
	_, ok := g.OOMKills()
	require.False(t, ok)
	require.NoError(t, g.Remove(t.Context()))
	require.NoError(t, syscall.Kill(pid, 0), "the child lives")
}

func TestWhereNoGroupCanBeMadeAutoDoesWithoutAndAForcedModeFails(t *testing.T) {
	options := Options{Parent: "/cgroup.procs", Name: "x", Logger: slog.New(slog.DiscardHandler)} // a file
	m, err := Open(options)
	require.NoError(t, err)
	require.IsType(t, none{}, m.driver)
	for _, mode := range []Mode{V1, V2, "v3"} {
		options.Mode = mode
		_, err := Open(options)
		require.ErrorContains(t, err, string(mode))
	}
}

func TestMountsAreReadAsTheyStandInMachinesAndContainers(t *testing.T) {
	tests := map[string]struct {
		info string
		own1 map[string]string
		own2 string
		want mounts
	}{
		"cgroup v2 on a machine": {
			info: "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
			own2: "/system.slice/hotseat.service",
			want: mounts{
				v2: []hierarchy{{mount: "/sys/fs/cgroup", root: "/", own: "/system.slice/hotseat.service"}},
				v1: map[string]hierarchy{},
			},
		},
		"cgroup v1 in a container that shares the view of the host": {
			info: "41 31 0:36 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n" +
				"42 31 0:37 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
			own1: map[string]string{"pids": "/docker/abc/inner", "cpu": "/elsewhere", "cpuacct": "/elsewhere"},
			want: mounts{v1: map[string]hierarchy{
				"pids":    {mount: "/sys/fs/cgroup/pids", root: "/docker/abc", own: "/inner"},
				"cpu":     {mount: "/sys/fs/cgroup/cpu,cpuacct", root: "/docker/abc", own: "/"},
				"cpuacct": {mount: "/sys/fs/cgroup/cpu,cpuacct", root: "/docker/abc", own: "/"},
			}},
		},
		"a folder with a blank in its name": {
			info: "30 24 0:26 / /mnt/my\\040cgroups rw - cgroup2 cgroup2 rw\n",
			own2: "/a",
			want: mounts{v2: []hierarchy{{mount: "/mnt/my cgroups", root: "/", own: "/a"}}, v1: map[string]hierarchy{}},
		},
		"no cgroups": {
			info: "1 0 0:1 / / rw - ext4 /dev/vda rw\n",
			want: mounts{v1: map[string]hierarchy{}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			table, err := mountinfo.GetMountsFromReader(strings.NewReader(test.info), mountinfo.FSTypeFilter("cgroup", "cgroup2"))
			require.NoError(t, err)
			require.Equal(t, test.want, hierarchies(table, test.own1, test.own2))
		})
	}
}
