package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

// Of the section "Life of an instance" of spec/rows.md: an engine that
// ignores SIGTERM, forks a worker that leaves the process group, double-forks:
// nothing of it is left after its end, in each of the ways to keep groups of
// processes.

type stubbornEngine struct {
	name       string
	args       []string
	needsGroup bool
}

var groupModes = []string{"v2", "v1", "none"}

// stubborn are the engines that do not want to go. Without groups, one that
// left the session, its parent and its environment cannot be found.
var stubborn = []stubbornEngine{
	{"one that ignores SIGTERM", []string{"--sim-ignore-term", "true"}, false},
	{"one with a worker in another process group", []string{"--sim-stray", "group"}, false},
	{"one with a worker in another process group that forgot its environment", []string{"--sim-stray", "group", "--sim-stray-env", "clear"}, false},
	{"one with a worker in another session", []string{"--sim-stray", "session"}, false},
	{"one with a worker in another session that forgot its environment", []string{"--sim-stray", "session", "--sim-stray-env", "clear"}, false},
	{"one that double-forks", []string{"--sim-stray", "double-fork"}, false},
	{"one that double-forks and forgets its environment", []string{"--sim-stray", "double-fork", "--sim-stray-env", "clear"}, true},
	{"one that does it all", []string{"--sim-ignore-term", "true", "--sim-stray", "double-fork"}, false},
}

// nodeWithGroups makes a node that keeps groups of processes in a way. Where
// the machine does not offer that, the test is skipped, loudly.
func nodeWithGroups(t *testing.T, mode string, flags ...string) *Node {
	t.Helper()
	n := NewStoppedNode(t, append([]string{"--cgroups", mode, "--stop-grace", "300ms"}, flags...)...)
	look := exec.Command(bin.launcher, append([]string{"doctor", "-o", "json"}, n.args[1:]...)...)
	look.Env = n.env
	out, err := look.Output()
	var report struct {
		Checks []struct{ Name, Status, Finding string }
	}
	require.NoError(t, json.Unmarshal(out, &report), "%v: %s", err, out)
	for _, check := range report.Checks {
		require.NotContains(t, check.Finding, "did not end in time")
		if check.Name == "cgroups" && check.Status == "fail" {
			t.Skipf("NOT TESTED: THIS MACHINE HAS NO CGROUPS OF MODE %s: %s", mode, check.Finding)
		}
	}
	n.Start()
	require.Contains(t, n.Log(), "mode="+mode)
	return n
}

// living lists the processes of the node's engines: those with its folder of
// GPUs in their environment, and those that hold memory of a GPU, whatever
// they did to their environment.
func (n *Node) living() []int {
	n.t.Helper()
	pids := engines(n.SimFS)
	dir, err := simgpu.Open(n.SimFS)
	require.NoError(n.t, err)
	for gpu := range 2 {
		holders, err := dir.Holders(GPU(gpu))
		require.NoError(n.t, err)
		for _, h := range holders {
			if !slices.Contains(pids, h.PID) {
				pids = append(pids, h.PID)
			}
		}
	}
	return pids
}

// groupFolders lists the folders of instances that the launcher has in any
// hierarchy of groups.
func (n *Node) groupFolders() (found []string) {
	n.t.Helper()
	m := regexp.MustCompile(`hotseat-[0-9a-f]{12}`).FindString(n.Log())
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && m != "" && d.IsDir() && filepath.Base(filepath.Dir(path)) == m {
			found = append(found, path)
		}
		return nil // what cannot be read is no group of ours
	})
	return found
}

func TestNothingOfAStubbornEngineIsLeftAfterItsDelete(t *testing.T) {
	t.Parallel()
	for _, mode := range groupModes {
		t.Run("cgroups "+mode, func(t *testing.T) {
			t.Parallel()
			n := nodeWithGroups(t, mode)
			n.eachStubborn(func(id string) { n.Delete(id) })
		})
	}
}

func TestNothingOfAStubbornEngineIsLeftAfterItsAPIServerDied(t *testing.T) {
	t.Parallel()
	for _, mode := range groupModes {
		t.Run("cgroups "+mode, func(t *testing.T) {
			t.Parallel()
			n := nodeWithGroups(t, mode)
			n.eachStubborn(func(id string) {
				require.NoError(t, syscall.Kill(n.Get(id).PID, syscall.SIGKILL))
				n.Await(id, "failed")
				n.Eventually("it is cleared without a delete", func() bool { return len(n.living()) == 0 })
				n.Delete(id)
			})
		})
	}
}

func TestNothingOfStubbornEnginesIsLeftWhenAnotherLauncherThanStartedThemDeletesThem(t *testing.T) {
	t.Parallel()
	for _, mode := range groupModes {
		t.Run("cgroups "+mode, func(t *testing.T) {
			t.Parallel()
			n := nodeWithGroups(t, mode)
			count := 0
			for k, s := range n.stubborn() {
				n.Create(fmt.Sprintf("i%d", k), Spec("m", On(k%2), append(s.args, "--gpu-memory-utilization", "0.2", "--sim-stray-bytes", "7MiB")...))
				count++
			}
			n.settled()
			before := n.living()
			n.Kill9()
			n.Start()
			var deleted launcherapi.StoppedList
			n.Call("DELETE", "/v2/vllm/instances", nil).Into(t, &deleted)
			assert.Equal(t, count, deleted.TotalStopped)
			n.noneOf(before)
		})
	}
}

// eachStubborn starts one stubborn engine after the other, ends it, and checks
// that nothing of it is left.
func (n *Node) eachStubborn(end func(id string)) {
	n.t.Helper()
	for k, s := range n.stubborn() {
		id := fmt.Sprintf("i%d", k)
		n.Awake(id, On(0, 1), append(s.args, "-tp", "2", "--sim-stray-bytes", "7MiB")...)
		before := n.living()
		want := 4 // API server, EngineCore, two workers
		if slices.Contains(s.args, "--sim-stray") {
			want++
		}
		assert.Len(n.t, before, want, s.name)
		end(id)
		n.noneOf(before)
		require.False(n.t, n.t.Failed(), s.name)
	}
}

// stubborn are the engines that the node's way to keep groups can end.
func (n *Node) stubborn() []stubbornEngine {
	n.t.Helper()
	if !strings.Contains(n.Log(), "mode=none") {
		return stubborn
	}
	return slices.DeleteFunc(slices.Clone(stubborn), func(s stubbornEngine) bool { return s.needsGroup })
}

// noneOf checks that those processes are gone, and whatever else may be left of
// engines.
func (n *Node) noneOf(pids []int) {
	n.t.Helper()
	for _, pid := range pids {
		assert.Empty(n.t, cmdline(pid), "process %d is left", pid)
	}
	assert.Empty(n.t, n.living())
	assert.Empty(n.t, n.groupFolders())
}

func TestAGroupOfProcessesIsWhereItsModeSays(t *testing.T) {
	t.Parallel()
	for mode, folders := range map[string]int{"v2": 1, "v1": 1, "none": 0} {
		t.Run("cgroups "+mode, func(t *testing.T) {
			t.Parallel()
			n := nodeWithGroups(t, mode)
			n.Awake("a", On(0))
			found := n.groupFolders()
			if folders == 0 {
				assert.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			for _, folder := range found {
				assert.Equal(t, "i-a", filepath.Base(folder))
			}
			assert.Equal(t, mode == "v2", fileIn(found[0], "cgroup.events"))
			n.Delete("a")
			assert.Empty(t, n.groupFolders())
		})
	}
}

func fileIn(folder, name string) bool {
	found, _ := filepath.Glob(filepath.Join(folder, name))
	return len(found) == 1
}
