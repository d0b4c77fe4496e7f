//go:build vllm

package vllm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// environmentCase is a variable that counts when vLLM is loaded.
type environmentCase struct {
	name, value string
	has         func(t *testing.T, n *node, i launcherapi.Instance) // checks that an instance has it
}

// An instance that has load-time variables otherwise waits for a preloader of its
// own, from which the next is forked at once.
func TestAnInstanceGetsTheVariablesThatItAsksForHoweverItIsStarted(t *testing.T) {
	t.Parallel()
	own, library := witness(t), emptyLibrary(t)
	// The node's own witness is there for each instance but those which have
	// another.
	common := witness(t)
	n := newNode(t, by(launcherapi.StartAuto), func(n *node) { n.env = []string{"PYTHONPATH=" + common} })
	n.preloaded("")

	n.show("an instance with a variable that nothing reads when vLLM is loaded is forked", func(t *testing.T) {
		i, err := n.Create(t.Context(), "mine", withVariables(launcherapi.StartAuto, map[string]string{"MY_SETTING": "1"}))
		require.NoError(t, err)
		assert.Equal(t, launcherapi.StartFork, i.StartedBy, i.Reason)
		assert.Empty(t, i.Reason)
		n.await("mine", "awake")
		ask(t, i)
		assert.True(t, harness.Process{PID: i.PID}.Has("MY_SETTING", "1"), "tools see it")
		for _, p := range vllmProcesses(i) {
			said := testimonyOf(t, n, common, p)
			assert.Equal(t, "1", said.Environment["MY_SETTING"])
			assert.Equal(t, 1, said.Threads, "OpenMP's, as nobody asked for more")
		}
		n.remove("mine")
	})

	level := environmentCase{name: "VLLM_LOGGING_LEVEL", value: "DEBUG", has: func(t *testing.T, n *node, i launcherapi.Instance) {
		assert.Contains(t, n.logOf(t, i.InstanceID), "DEBUG ")
	}}
	threads := environmentCase{name: "OMP_NUM_THREADS", value: "2", has: func(t *testing.T, n *node, i launcherapi.Instance) {
		witness := common
		if _, other := i.EnvVars["PYTHONPATH"]; other {
			witness = own
		}
		for _, p := range vllmProcesses(i) {
			said := testimonyOf(t, n, witness, p)
			assert.Equal(t, "2", said.Environment["OMP_NUM_THREADS"])
			assert.Equal(t, 2, said.Threads, "%s", p.CommandLine())
		}
	}}
	preload := environmentCase{name: "LD_PRELOAD", value: library, has: func(t *testing.T, _ *node, i launcherapi.Instance) {
		for _, p := range vllmProcesses(i) {
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
			require.NoError(t, err)
			assert.True(t, strings.Contains(string(maps), library), "%s has it not", p.CommandLine())
		}
	}}
	path := environmentCase{name: "PYTHONPATH", value: own, has: func(t *testing.T, n *node, i launcherapi.Instance) {
		for _, p := range vllmProcesses(i) {
			assert.Equal(t, own, testimonyOf(t, n, own, p).Environment["PYTHONPATH"])
		}
	}}
	for _, cases := range [][]environmentCase{{threads, level}, {preload, path}} { // each in the order of the alphabet, as a preloader names them
		names := namesOf(cases)
		n.show("it waits for a preloader of its own: "+names, func(t *testing.T) { n.waitsForItsOwn(t, cases) })
		n.show("it has what it asks for: "+names, func(t *testing.T) { n.has(t, waiting, cases...) })
		n.preloaded(names)
		n.show("so has the next, which is forked at once: "+names, func(t *testing.T) { n.hasBy(t, launcherapi.StartFork, cases...) })
	}
	n.show("one that asks for them all has them by exec", func(t *testing.T) {
		n.hasBy(t, launcherapi.StartExec, threads, level, preload, path)
	})
}

// namesOf returns the variables of cases as the tests name a preloader.
func namesOf(cases []environmentCase) string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return strings.Join(names, " ")
}

// waiting is the instance that waits for a preloader.
const waiting = "waiting"

func (n *node) waitsForItsOwn(t *testing.T, cases []environmentCase) {
	i, err := n.Create(t.Context(), waiting, withVariables("", valuesOf(cases)))
	require.NoError(t, err)
	assert.Equal(t, "starting", i.State)
	assert.Empty(t, i.StartedBy)
	list, err := n.Preloaders(t.Context())
	require.NoError(t, err)
	last := list.Preloaders[len(list.Preloaders)-1]
	assert.Equal(t, namesOf(cases), strings.Join(last.Variables, " "))
	assert.Equal(t, "loading", last.State)
	assert.Contains(t, i.Reason, "waiting for a separate preloader for "+strings.Join(last.Variables, ", "))
}

// valuesOf returns the variables of cases.
func valuesOf(cases []environmentCase) map[string]string {
	values := map[string]string{}
	for _, c := range cases {
		values[c.name] = c.value
	}
	return values
}

// hasBy makes an instance by a method, which has what it asks for.
func (n *node) hasBy(t *testing.T, method string, cases ...environmentCase) {
	i, err := n.Create(t.Context(), method, withVariables(method, valuesOf(cases)))
	require.NoError(t, err)
	assert.Equal(t, method, i.StartedBy, i.Reason)
	n.has(t, method, cases...)
}

// has waits for an instance, which has what it asks for.
func (n *node) has(t *testing.T, id string, cases ...environmentCase) {
	i := n.await(id, "awake")
	if id == waiting && i.StartedBy != launcherapi.StartFork { // the load took over twice as long as the one before it
		assert.Contains(t, i.Reason, "is loading, for")
	}
	ask(t, i)
	for _, c := range cases {
		c.has(t, n, i)
	}
	n.remove(id)
}

// withVariables is an instance of the first model, on no GPU.
func withVariables(method string, variables map[string]string) launcherapi.InstanceSpec {
	spec := launcherapi.InstanceSpec{Args: arguments(modelA, "tiny-a"), StartMethod: method, EnvVars: map[string]launcherapi.EnvValue{}}
	for name, value := range variables {
		spec.EnvVars[name] = launcherapi.EnvValue{Value: value}
	}
	return spec
}

// vllmProcesses are those of an instance that run vLLM: the resource tracker
// of Python's multiprocessing does not.
func vllmProcesses(i launcherapi.Instance) (found []harness.Process) {
	for _, p := range tree(i) {
		if !strings.Contains(p.CommandLine(), "resource_tracker") {
			found = append(found, p)
		}
	}
	return found
}

// witness makes a folder for PYTHONPATH. A process that has it there says, on
// SIGUSR2, what it sees.
func witness(t *testing.T) string {
	return pythonPath(t, "sitecustomize.py", `
import json, os, signal, sys

def testify(*_):
    torch = sys.modules.get("torch")
    path = os.path.join(os.path.dirname(__file__), str(os.getpid()))
    with open(path + ".part", "w") as file:
        json.dump({"threads": torch.get_num_threads() if torch else 0, "environment": dict(os.environ)}, file)
    os.rename(path + ".part", path)

signal.signal(signal.SIGUSR2, testify)
`)
}

// pythonPath makes a folder with one module.
func pythonPath(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	return dir
}

// testimony is what a process says of itself.
type testimony struct {
	Threads     int // OpenMP's, says PyTorch
	Environment map[string]string
}

func testimonyOf(t *testing.T, n *node, witness string, p harness.Process) (said testimony) {
	t.Helper()
	file := filepath.Join(witness, fmt.Sprint(p.PID))
	_ = os.Remove(file) // of another that had this number
	require.NoError(t, syscall.Kill(p.PID, syscall.SIGUSR2))
	n.eventually(p.CommandLine()+" testifies", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &said))
	return said
}

// emptyLibrary builds a shared library that does nothing.
func emptyLibrary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libempty.so")
	build := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-o", path, "/dev/null")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// An installation that cannot be forked costs nobody anything: the reason is
// told, and the engine is started as ever.
func TestAnInstallationThatCannotBeForkedIsLeftToExec(t *testing.T) {
	t.Parallel()
	threaded := newNode(t, by(launcherapi.StartAuto), func(n *node) {
		n.env = []string{"PYTHONPATH=" + pythonPath(t, "sitecustomize.py", `
import threading

threading.Thread(target=threading.Event().wait, name="the-thread", daemon=True).start()
`)}
	})
	threaded.refuses("the-thread")
	forkless, err := threaded.Create(t.Context(), "a", withVariables("", nil))
	require.NoError(t, err)
	assert.Equal(t, launcherapi.StartExec, forkless.StartedBy)
	assert.Contains(t, forkless.Reason, "the-thread")

	t.Run("a module that raises when it is imported", func(t *testing.T) {
		broken := newNode(t, by(launcherapi.StartAuto), func(n *node) {
			n.env = []string{"PYTHONPATH=" + pythonPath(t, "fastapi.py", "raise ImportError('broken on purpose')\n")}
		})
		broken.cannotStart("broken on purpose")
	})
	t.Run("a Python without vLLM", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		require.NoError(t, err)
		script, err := os.ReadFile(vllmPath)
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(script), "\n")
		command := filepath.Join(t.TempDir(), "vllm")
		require.NoError(t, os.WriteFile(command, []byte("#!"+python+" -I\n"+rest), 0o700))
		broken := newNode(t, by(launcherapi.StartAuto), func(n *node) { n.vllm = command })
		broken.cannotStart("No module named 'vllm'")
	})
	t.Run("a thread that an import starts", func(*testing.T) {
		ask(t, threaded.await("a", "awake"))
		threaded.stops(t, "a")
	})
}

// refuses waits until the first preloader says why it does not serve.
func (n *node) refuses(reason string) {
	n.t.Helper()
	n.eventually("the reason is told: "+reason, func() bool {
		list, err := n.Preloaders(n.t.Context())
		require.NoError(n.t, err)
		return len(list.Preloaders) == 1 && strings.Contains(list.Preloaders[0].Reason, reason)
	})
}

// cannotStart shows an installation that does not even start by exec.
func (n *node) cannotStart(reason string) {
	n.t.Helper()
	n.refuses(reason)
	i, err := n.Create(n.t.Context(), "a", withVariables("", nil))
	require.NoError(n.t, err)
	assert.Equal(n.t, launcherapi.StartExec, i.StartedBy)
	assert.Contains(n.t, i.Reason, reason)
	f := n.await("a", "failed")
	assert.Equal(n.t, "broken_installation", f.Cause, f.Reason)
	assert.Contains(n.t, n.logOf(n.t, "a"), reason, "in vLLM's own words")
	_, err = n.Create(n.t.Context(), "b", withVariables(launcherapi.StartFork, nil))
	assert.True(n.t, client.IsUnavailable(err), "%v", err)
	n.remove("a")
}
