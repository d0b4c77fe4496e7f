package e2e

import (
	"errors"
	"fmt"
	"os"
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
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

// Starts by fork, seen from outside. Only a Python engine can be forked: here
// it is the stand-in of test/helpers/pyengine.

// forkNode is a node whose engine can be forked.
type forkNode struct {
	*Node
	site string // its installation
}

// newForkNode makes one whose launcher does not run yet.
func newForkNode(t *testing.T, more ...string) *forkNode {
	t.Helper()
	return forkNodeOf(t, func(flags ...string) *Node { return NewStoppedNode(t, append(flags, more...)...) })
}

func forkNodeOf(t *testing.T, made func(flags ...string) *Node) *forkNode {
	t.Helper()
	n := &forkNode{site: t.TempDir()}
	command, err := pyengine.Install(n.site)
	require.NoError(t, err)
	t.Cleanup(func() { // when its launcher has ended
		n.Eventually("no process of a preloader is left", func() bool { return len(preloaders(n.Node)) == 0 })
	})
	n.Node = made("--vllm", command)
	return n
}

// forkNodeWithGroups makes one that keeps groups of processes in a way.
func forkNodeWithGroups(t *testing.T, mode string) *forkNode {
	t.Helper()
	return forkNodeOf(t, func(flags ...string) *Node { return nodeWithGroups(t, mode, flags...) })
}

// preloaders lists the processes that show the command line of a preloader:
// it, and what it forked that has not become an engine.
func preloaders(n *Node) []int {
	return harness.PIDs(harness.Processes(func(p harness.Process) bool {
		return strings.Contains(p.CommandLine(), n.State) && !slices.Contains(p.Args, "--state-dir")
	}))
}

// preloader waits until the preloader is ready.
func (n *forkNode) preloader() (l launcherapi.Preloader) {
	n.t.Helper()
	n.Eventually("a preloader is ready", func() bool {
		var list launcherapi.PreloaderList
		n.Call("GET", "/v2/vllm/preloaders", nil).Into(n.t, &list)
		require.Empty(n.t, list.Reason)
		if len(list.Preloaders) > 0 {
			l = list.Preloaders[0]
		}
		return l.State == "ready"
	})
	return l
}

// by is the body of a create call by a start method, on no GPU.
func by(method string, args ...string) map[string]any {
	spec := Spec("model", []string{}, args...)
	spec["start_method"] = method
	return spec
}

// run makes an instance by a method and waits until it is awake.
func (n *forkNode) run(id, method string) launcherapi.Instance {
	n.t.Helper()
	n.Create(id, by(method))
	return n.Await(id, "awake")
}

func (n *forkNode) cli(args ...string) string {
	n.t.Helper()
	cmd := exec.Command(bin.launcher, append(args[:1:1], append([]string{"--server", n.URL}, args[1:]...)...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(n.t, err, "%s", out)
	return string(out)
}

// hold has preloaders load no further than the test lets them: load ends that.
// What is started by exec is not held.
func (n *forkNode) hold() (load func()) {
	n.t.Helper()
	begin := filepath.Join(n.t.TempDir(), "begin")
	n.loads(fmt.Sprintf("import os, time\nwhile not os.path.exists(%q):\n    time.sleep(0.01)\n", begin))
	return func() {
		n.t.Helper()
		require.NoError(n.t, os.WriteFile(begin, nil, 0o600))
	}
}

// loads has preloaders alone do something while they load.
func (n *forkNode) loads(python string) {
	n.t.Helper()
	file, err := os.OpenFile(filepath.Join(n.site, "vllm", "platforms.py"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(n.t, err)
	_, err = file.WriteString("\n" + python)
	require.NoError(n.t, errors.Join(err, file.Close()))
}

func TestTheStartMethodIsKeptAndWhatWasDoneIsTold(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	load := n.hold()
	n.Start()

	early := n.Create("early", by("auto"))
	assert.Empty(t, early.StartedBy)
	assert.Zero(t, early.PID)
	assert.Contains(t, early.Reason, "waiting for the preloader, which began to load at ")
	p := n.Call("PUT", "/v2/vllm/instances/refused", by("fork")).Problem(t)
	assert.Equal(t, 503, p.Status)
	assert.Contains(t, p.Detail, "the preloader is loading")
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/refused", nil).Status)
	load()
	assert.Equal(t, "fork", n.Await("early", "awake").StartedBy)
	loaded := n.preloader()
	assert.Equal(t, "0.30.0", loaded.EngineVersion)

	for method, want := range map[string]string{"auto": "fork", "fork": "fork", "exec": "exec"} {
		i := n.run(method, method)
		assert.Equal(t, want, i.StartedBy)
		assert.Equal(t, method, i.StartMethod)
		assert.Empty(t, i.Reason)
	}
	n.cli("run", "--gpu", "none", "--id", "line", "--start-method", "fork", "--wait", "--", "model")
	table := n.cli("ps")
	for id, want := range map[string]string{"early": "fork", "auto": "fork", "fork": "fork", "exec": "exec", "line": "fork"} {
		assert.Regexp(t, `(?m)^`+id+` .*awake.* `+want+` `, table)
	}
	assert.Regexp(t, fmt.Sprintf(`(?m)^preloader-1 +ready +0\.30\.0 +%d +4 `, loaded.PID), n.cli("preloaders"))

	n.cli("swap", "--gpu", "0", "--id", "swapped", "--start-method", "exec", "--", "model")
	assert.Equal(t, "exec", n.Get("swapped").StartedBy)
	got := n.Call("POST", "/v2/vllm/swap", map[string]any{"in": map[string]any{"instance_id": "swapped", "start_method": "exec"}})
	assert.Equal(t, 422, got.Problem(t).Status)
	n.Delete("swapped")

	n.Sleep("fork", 1)
	n.Wake("fork")
	n.Sleep("fork", 2)
	n.Wake("fork")
	for _, id := range []string{"early", "auto", "fork", "exec", "line"} {
		n.Delete(id)
	}
	n.nothingLeft()
}

func TestAForkedInstanceLooksFromOutsideLikeOneStartedByExec(t *testing.T) {
	t.Parallel()
	for _, mode := range groupModes {
		t.Run("cgroups "+mode, func(t *testing.T) {
			t.Parallel()
			n := forkNodeWithGroups(t, mode)
			n.preloader()
			exec, fork := n.run("a-exec", "exec"), n.run("a-fork", "fork")
			want, got := outside(t, exec), outside(t, fork)
			assert.Equal(t, want, got)
			assert.Contains(t, got.fds, "1 LOG")
			assert.Contains(t, got.fds, "2 LOG")
			assert.True(t, got.leads)

			births, err := pyengine.Births(n.site)
			require.NoError(t, err)
			require.Len(t, births, 2)
			for _, b := range births[1:] {
				assert.Equal(t, fork.PID, b.PID)
				assert.Equal(t, groupsOf(t, fork.PID), b.Groups, "it was born in the groups that it is in")
				assert.Equal(t, mode != "none", strings.Contains(strings.Join(b.Groups, " "), "/i-a-fork"))
			}
		})
	}
}

// process is what can be seen of one, with all that is each one's own made equal.
type process struct {
	fds, env, status, groups     []string
	cmdline, dir, root, exe, oom string
	limits                       string
	leads                        bool // a session
}

func outside(t *testing.T, i launcherapi.Instance) (p process) {
	t.Helper()
	own := strings.NewReplacer(i.InstanceID, "ID", engineAddress(t, i), "ADDRESS", fmt.Sprintf("HOTSEAT_PUBLIC=:%d", i.Port), "HOTSEAT_PUBLIC=:PORT")
	read := func(name string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", i.PID, name))
		require.NoError(t, err)
		return own.Replace(string(data))
	}
	link := func(name string) string {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", i.PID, name))
		require.NoError(t, err)
		return own.Replace(target)
	}
	dirs, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", i.PID))
	require.NoError(t, err)
	for _, d := range dirs {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", i.PID, d.Name()))
		if errors.Is(err, os.ErrNotExist) || strings.HasPrefix(target, "socket:") {
			continue // its port, and what the launcher asks it just now
		}
		require.NoError(t, err)
		if strings.Contains(target, "/logs/") {
			target = "LOG"
		}
		p.fds = append(p.fds, d.Name()+" "+target)
	}
	for _, name := range []string{"Umask", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups", "Name"} {
		p.status = append(p.status, regexp.MustCompile(`(?m)^`+name+`:.*$`).FindString(read("status")))
	}
	var parent, group, session int
	stat := read("stat")
	_, err = fmt.Sscanf(stat[strings.LastIndexByte(stat, ')')+4:], "%d %d %d", &parent, &group, &session)
	require.NoError(t, err)
	for env := range strings.SplitSeq(strings.TrimRight(read("environ"), "\x00"), "\x00") {
		if !strings.HasPrefix(env, "VLLM_RPC_BASE_PATH=") { // a folder of its own
			p.env = append(p.env, env)
		}
	}
	slices.Sort(p.env)
	p.leads = group == i.PID && session == i.PID
	p.cmdline, p.dir, p.root, p.exe, p.oom, p.limits = read("cmdline"), link("cwd"), link("root"), link("exe"), read("oom_score_adj"), read("limits")
	p.cmdline = strings.TrimRight(p.cmdline, "\x00")
	for _, g := range groupsOf(t, i.PID) {
		p.groups = append(p.groups, own.Replace(g))
	}
	return p
}

func groupsOf(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	return strings.Fields(string(data))
}

func TestAPreloaderThatIsKilledWhileItForksLeavesTheStartToExec(t *testing.T) {
	t.Parallel()
	for name, moment := range map[string]pyengine.Moment{"before there is a child": pyengine.BeforeFork, "when the child lives": pyengine.AfterFork} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newForkNode(t)
			n.Start()
			first := n.preloader()
			require.NoError(t, pyengine.KillAt(n.site, moment))
			i := n.Create("a", by("fork"))
			assert.Equal(t, "exec", i.StartedBy)
			assert.Contains(t, i.Reason, "started by exec: the preloader did not fork")
			assert.Equal(t, "awake", n.Await("a", "awake").State)
			n.noneDoubled(n.settled())
			assert.NotEqual(t, first.PID, n.preloader().PID, "another one takes its place")
			assert.Equal(t, "fork", n.run("b", "fork").StartedBy)
			assert.Len(t, preloaders(n.Node), 1, "nothing waits at a gate")
		})
	}
}

func TestAKillWhileAnInstanceIsForked(t *testing.T) {
	t.Parallel()
	for _, mode := range groupModes {
		for _, point := range []string{"start.asked", "start.forked", "start.spawned"} {
			t.Run(point+", cgroups "+mode, func(t *testing.T) {
				t.Parallel()
				n := forkNodeWithGroups(t, mode)
				n.crashAt(point)
				first := n.preloader()
				n.later("PUT", "/v2/vllm/instances/a", by("fork"))
				n.comeBack()
				all := n.settled()
				n.noneDoubled(all)
				require.Len(t, all, 1)
				next := n.preloader()
				assert.NotEqual(t, first.PID, next.PID)
				births, err := pyengine.Births(n.site)
				require.NoError(t, err)
				if point == "start.spawned" {
					assert.Equal(t, "awake", all["a"].State, all["a"].Reason)
					assert.Equal(t, births[1].PID, all["a"].PID)
				} else {
					assert.Equal(t, "failed", all["a"].State, "it never ran, and says so")
					for _, b := range births {
						n.Eventually("what was forked has ended", func() bool { return syscall.Kill(b.PID, 0) != nil })
					}
					assert.Empty(t, string(n.logFile(all["a"])), "it never ran")
				}
				assert.Equal(t, []int{next.PID}, preloaders(n.Node), "the first one went with its launcher")
				n.Delete("a")
				assert.Equal(t, "fork", n.run("a", "fork").StartedBy, "the id is free again")
			})
		}
	}
}

func TestAForkedInstanceOutlivesItsPreloaderAndItsLauncher(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	n.Start()
	first := n.preloader()
	a, b := n.run("a", "fork"), n.run("b", "fork")
	n.Sleep("b", 2)
	require.NoError(t, syscall.Kill(first.PID, syscall.SIGKILL))
	n.Eventually("its end is seen", func() bool { return n.preloader().PID != first.PID })
	assert.Equal(t, 200, call(t, "GET", publicURL(a, "/health"), nil).Status)
	n.Kill9()
	n.Eventually("the preloader ends with its launcher", func() bool { return len(preloaders(n.Node)) == 0 })
	assert.Len(t, engines(n.SimFS), 2, "the models live")
	n.Start()
	all := n.settled()
	for id, want := range map[string]launcherapi.Instance{"a": a, "b": b} {
		assert.Equal(t, want.PID, all[id].PID)
		assert.Equal(t, want.Port, all[id].Port)
		assert.Equal(t, "fork", all[id].StartedBy)
	}
	assert.Equal(t, "awake", all["a"].State)
	assert.Equal(t, "sleeping", all["b"].State)
	n.noneDoubled(all)
	n.Wake("b")
	assert.Equal(t, 200, call(t, "GET", publicURL(all["b"], "/health"), nil).Status)
	n.Delete("a")
	n.Delete("b")
	n.nothingLeft()
}

func TestUnderInitTheExitCodeOfAForkedInstanceThatWasAdoptedIsKnown(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	n.args = append([]string{"init", "--"}, n.args...)
	n.Start()
	n.preloader()
	a, b := n.run("a", "fork"), n.run("b", "fork")
	n.killServe(a)
	n.killAndKnowWhy(b)
	assert.Equal(t, "awake", n.Get("a").State)
	n.preloader()
	assert.Equal(t, "fork", n.run("c", "fork").StartedBy)
}
