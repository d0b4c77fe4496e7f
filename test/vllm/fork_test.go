//go:build vllm

package vllm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// debug is a variable that vLLM reads when it is imported.
const debug = "VLLM_LOGGING_LEVEL"

// Two instances are started by exec here, each of which takes most of a minute;
// what is forked is looked at meanwhile.
func TestForkedInstancesAreAsThoseStartedByExec(t *testing.T) {
	n := newNode(t, auto)
	n.createBy(launcherapi.StartExec, "exec", gpu(0))
	n.preloaded("")

	var verbose launcherapi.Instance
	n.show("a variable that is read when vLLM is loaded has an instance started by exec", func(t *testing.T) {
		var err error
		verbose, err = n.Create(t.Context(), "verbose", environment(debug, "DEBUG", ""))
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartExec, verbose.StartedBy)
		assert.Contains(t, verbose.Reason, debug)
		list, err := n.Preloaders(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Preloaders, 2, "one begins to load for it")
		assert.Equal(t, []string{debug}, list.Preloaders[1].Variables)
	})
	n.show("an instance with any other variable is forked", func(t *testing.T) {
		i, err := n.Create(t.Context(), "mine", environment("MY_SETTING", "1", ""))
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartFork, i.StartedBy, i.Reason)
		assert.Empty(t, i.Reason)
		n.await("mine", "awake")
		ask(t, i)
		assert.True(t, process{pid: i.PID}.marked("MY_SETTING=1"), "tools see it")
		n.remove("mine")
	})

	n.createBy(launcherapi.StartFork, "fork", gpu(1))
	seen := map[string]facts{}
	for _, method := range []string{launcherapi.StartFork, launcherapi.StartExec} {
		n.show("the life of an instance started by "+method, func(t *testing.T) { seen[method] = n.lives(t, method) })
	}
	n.show("nobody can tell from outside how an instance was started", func(t *testing.T) {
		fork, exec := seen[launcherapi.StartFork], seen[launcherapi.StartExec]
		assert.Equal(t, exec, fork)
		assert.Greater(t, len(fork.paths), 10)
		assert.Greater(t, len(fork.metrics), 10)
		assert.GreaterOrEqual(t, len(fork.comms), 3, "API server, EngineCore, Worker")
	})

	n.show("a preloader of its own serves what that variable says", func(t *testing.T) {
		n.await("verbose", "awake")
		ask(t, verbose)
		assert.Contains(t, n.logOf(t, "verbose"), "DEBUG ")
		n.preloaded(debug)
		forked, err := n.Create(t.Context(), "forked", environment(debug, "DEBUG", launcherapi.StartFork))
		require.NoError(t, err)
		require.Equal(t, launcherapi.StartFork, forked.StartedBy)
		n.await("forked", "awake")
		assert.Equal(t, ask(t, verbose), ask(t, forked))
		assert.Contains(t, n.logOf(t, "forked"), "DEBUG ")
	})
}

func TestForkedInstancesEndAndSurviveLikeAnyOther(t *testing.T) {
	n := newNode(t, auto)
	preloader := n.preloaded("")

	for _, d := range []death{
		{name: "api", title: "", exit: -9, cause: "killed"},
		{name: "core", title: "VLLM::EngineCore", exit: 0, cause: "engine_core_died"},
		{name: "worker", title: "VLLM::Worker", exit: 0, cause: "engine_core_died"},
	} {
		n.createBy(launcherapi.StartFork, d.name, gpu(0))
		n.await(d.name, "awake")
		n.show(d.name+" dies", func(t *testing.T) { n.dies(t, d) })
	}
	n.show("ten come and go, and nothing of them stays", func(t *testing.T) { n.comeAndGo(t, preloader.PID) })

	n.createBy(launcherapi.StartFork, "a", gpu(0))
	a := n.await("a", "awake")
	words := ask(t, a)
	n.show("the preloader dies: what it forked answers, and another one takes its place", func(t *testing.T) {
		require.NoError(t, syscall.Kill(preloader.PID, syscall.SIGKILL))
		n.eventually("the dead preloader is noticed", func() bool { return n.ready("").PID != preloader.PID })
		assert.Equal(t, words, ask(t, a))
		next := n.preloaded("")
		assert.NotEqual(t, preloader.PID, next.PID)
		preloader = next
		assert.Equal(t, words, ask(t, a))
		n.createBy(launcherapi.StartFork, "b", gpu(1))
		n.await("b", "awake")
		n.remove("b")
	})
	n.show("a new launcher adopts what was forked, and ends it", func(t *testing.T) {
		n.kill()
		n.eventually("the preloader ends with its launcher", func() bool {
			return len(processes(func(p process) bool { return p.pid == preloader.PID })) == 0
		})
		n.start()
		adopted := n.get("a")
		assert.Equal(t, "awake", adopted.State)
		assert.Equal(t, launcherapi.StartFork, adopted.StartedBy)
		assert.Equal(t, a.PID, adopted.PID)
		assert.Equal(t, words, ask(t, adopted))
		// It is no child of the new launcher, which is told exit codes by launcher
		// init alone: so it is for exec too.
		n.remove("a")
		assert.Empty(t, tree(a))
	})
}

// auto has the launcher fork what it can.
func auto(n *node) { n.startMethod = launcherapi.StartAuto }

// ready is the preloader that differs in one variable from the first, or the
// first: all zero when it is not ready.
func (n *node) ready(variable string) launcherapi.Preloader {
	n.t.Helper()
	list, err := n.Preloaders(n.t.Context())
	require.NoError(n.t, err)
	require.Empty(n.t, list.Reason)
	for _, p := range list.Preloaders {
		if strings.Join(p.Variables, " ") == variable && p.State == "ready" {
			return p
		}
	}
	return launcherapi.Preloader{}
}

// preloaded waits for that preloader.
func (n *node) preloaded(variable string) (p launcherapi.Preloader) {
	n.t.Helper()
	n.eventually("a preloader is ready", func() bool {
		p = n.ready(variable)
		return p.PID > 0
	})
	return p
}

// createBy makes an instance of the first model by a start method.
func (n *node) createBy(method, id string, gpus []string) {
	n.t.Helper()
	i, err := n.Create(n.t.Context(), id, launcherapi.InstanceSpec{Args: arguments(modelA, "tiny-a"), GPUUUIDs: gpus, StartMethod: method})
	require.NoError(n.t, err)
	require.Equal(n.t, "starting", i.State)
	require.Equal(n.t, method, i.StartedBy, i.Reason)
}

// environment is an instance of the first model, on no GPU, with a variable.
func environment(name, value, method string) launcherapi.InstanceSpec {
	return launcherapi.InstanceSpec{
		Args: arguments(modelA, "tiny-a"), StartMethod: method,
		EnvVars: map[string]launcherapi.EnvValue{name: {Value: value}},
	}
}

// logOf is the file that an instance writes.
func (n *node) logOf(t *testing.T, id string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.state, "logs", n.get(id).LogName))
	require.NoError(t, err)
	return string(log)
}

// facts are what can be seen of an instance.
type facts struct {
	words   string   // at temperature 0
	sampled string   // by a seed
	paths   []string // of its API
	metrics []string
	comms   []string // names of its processes
	argv    []string // without the port
}

// lives leads an instance, named after its start method, through its life.
func (n *node) lives(t *testing.T, method string) facts {
	i := n.await(method, "awake")
	assert.Equal(t, method, i.StartedBy)
	assert.Equal(t, method, i.StartMethod)
	f := n.look(t, i)
	for _, level := range []int{1, 2} {
		asleep, err := n.Sleep(t.Context(), method, launcherapi.SleepRequest{Level: level})
		require.NoError(t, err)
		assert.Equal(t, "sleeping", asleep.State)
		assert.Equal(t, level, asleep.SleepLevel)
		awake, err := n.Wake(t.Context(), method, launcherapi.WakeRequest{})
		require.NoError(t, err)
		assert.Equal(t, "awake", awake.State)
		assert.Equal(t, f.words, ask(t, i))
	}
	log := n.logOf(t, method)
	assert.Contains(t, log, "Application startup complete.")
	assert.Contains(t, log, "POST /v1/chat/completions HTTP/1.1\" 200")
	assert.Contains(t, log, "(EngineCore pid=")
	assert.Contains(t, log, "(Worker pid=")
	n.stops(t, method)
	return f
}

// stops deletes an instance, which ends as it should and leaves nothing.
func (n *node) stops(t *testing.T, id string) {
	t.Helper()
	i, err := n.Delete(t.Context(), id)
	require.NoError(t, err)
	require.NotNil(t, i.ExitCode, i.Reason)
	assert.Zero(t, *i.ExitCode)
	assert.Empty(t, tree(i))
}

func (n *node) look(t *testing.T, i launcherapi.Instance) facts {
	t.Helper()
	f := facts{words: ask(t, i)}
	var a answer
	resp, err := post(t.Context(), i, "/v1/chat/completions", strings.Replace(question(i, `,"max_tokens":24`), `"temperature":0`, `"temperature":1,"seed":7`, 1))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Len(t, a.Choices, 1)
	f.sampled = a.Choices[0].Message.Content
	require.NotEqual(t, f.words, f.sampled)

	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.PID))
	require.NoError(t, err)
	f.argv = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
	at := slices.Index(f.argv, "--port") + 1
	require.Positive(t, at, "%q", f.argv)
	port := f.argv[at]
	f.argv = slices.Delete(f.argv, at, at+1)

	var api struct{ Paths map[string]any }
	require.NoError(t, json.Unmarshal([]byte(fetch(t, "http://127.0.0.1:"+port+"/openapi.json")), &api))
	for path := range api.Paths {
		f.paths = append(f.paths, path)
	}
	for line := range strings.Lines(fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", i.Port))) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			f.metrics = append(f.metrics, fields[2])
		}
	}
	for _, p := range tree(i) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
		require.NoError(t, err)
		f.comms = append(f.comms, strings.TrimSpace(string(comm)))
	}
	for _, list := range [][]string{f.paths, f.metrics, f.comms} {
		slices.Sort(list)
	}
	return f
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
	return string(body)
}

// comeAndGo forks ten instances, one after the other, and compares what there
// is before and after.
func (n *node) comeAndGo(t *testing.T, preloader int) {
	http.DefaultClient.CloseIdleConnections()
	memory, open, alive, shared := ownMemory(t, preloader), n.descriptors(t), n.alive(), unmapped(t)
	for k := range 10 {
		id := fmt.Sprintf("one-%d", k)
		n.createBy(launcherapi.StartFork, id, gpu(k%2))
		i := n.await(id, "awake")
		if k == 0 {
			ask(t, i)
		}
		n.stops(t, id)
	}
	http.DefaultClient.CloseIdleConnections()
	after := ownMemory(t, preloader)
	t.Logf("the preloader's memory: %d MiB before, %d MiB after", memory>>20, after>>20)
	assert.LessOrEqual(t, after, memory+memory/20)
	assert.Equal(t, 10+3, n.ready("").Forks)
	assert.Equal(t, alive, n.alive(), "processes")
	n.eventually("as many descriptors are open as before", func() bool { return len(n.descriptors(t)) <= len(open) })
	n.eventually("nothing is left in /dev/shm", func() bool {
		return !slices.ContainsFunc(unmapped(t), func(file string) bool { return !slices.Contains(shared, file) })
	})
}

// ownMemory is the part of a process's PSS that is no file's, in bytes: what
// else has the same libraries mapped does not count in it.
func ownMemory(t *testing.T, pid int) uint64 {
	t.Helper()
	rollup, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	require.NoError(t, err)
	defer rollup.Close()
	for lines := bufio.NewScanner(rollup); lines.Scan(); {
		var kib uint64
		if k, _ := fmt.Sscanf(lines.Text(), "Pss_Anon: %d kB", &kib); k == 1 {
			return kib << 10
		}
	}
	require.FailNow(t, "the kernel does not tell Pss_Anon")
	return 0
}

// descriptors are what the launcher has open.
func (n *node) descriptors(t *testing.T) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		target, _ := os.Readlink(filepath.Join(dir, e.Name()))
		open = append(open, target)
	}
	return open
}

// alive lists the processes of the node.
func (n *node) alive() (pids []int) {
	for _, p := range processes(func(p process) bool { return n.sessions[p.session] || p.marked(n.mark) }) {
		pids = append(pids, p.pid)
	}
	slices.Sort(pids)
	return pids
}

// unmapped lists the shared memory and semaphores of Python's that no process
// uses.
func unmapped(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, kind := range []string{"psm_*", "sem.mp-*"} {
		found, err := filepath.Glob("/dev/shm/" + kind)
		require.NoError(t, err)
		files = append(files, found...)
	}
	for _, p := range processes(func(process) bool { return true }) {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.pid))
		files = slices.DeleteFunc(files, func(file string) bool { return strings.Contains(string(maps), file) })
	}
	return files
}
