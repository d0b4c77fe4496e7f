package preload

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

type facts struct {
	Argv    []string          `json:"argv"`
	Env     map[string]string `json:"env"`
	Dir     string            `json:"dir"`
	Umask   string            `json:"umask"`
	FDs     []string          `json:"fds"`
	Stdin   string            `json:"stdin"`
	Leads   bool              `json:"leads"`
	PPID    int               `json:"ppid"`
	Ignored string            `json:"ignored"`
	Blocked string            `json:"blocked"`
	Comm    string            `json:"comm"`
	Cmdline string            `json:"cmdline"`
	Random  float64           `json:"random"`
	Key     string            `json:"key"` // by which the processes of multiprocessing know each other
	Read    string            `json:"read"`
	Cgroup  []string          `json:"cgroup"`
	Main    string            `json:"main"`
	Shown   bool              `json:"shown"`
}

func TestForkedEngineEqualsExecutedEngine(t *testing.T) {
	f := newFixture(t)
	f.ready()
	want, got := f.startBoth([]string{"serve", "--model", "1", "a b"}, []string{"TOKEN=s3cret"})

	assert.NotEqual(t, want.Random, got.Random)
	assert.Equal(t, "forked", got.Env["HOTSEAT_INSTANCE"])
	assert.Equal(t, len(want.Cgroup), len(got.Cgroup))
	for _, group := range got.Cgroup {
		assert.Contains(t, group, "/i-forked", "it is in a group of its own")
	}
	assert.Equal(t, os.Getpid(), got.PPID, "its parent is the launcher")
	want.Random, want.Cgroup, got.Random, got.Cgroup = 0, nil, 0, nil
	want.Key, got.Key = "", ""
	want.Env["HOTSEAT_INSTANCE"] = "forked"
	assert.Equal(t, want, got)
}

func TestForkedSiblingsHaveDifferentRandomState(t *testing.T) {
	f := newFixture(t)
	f.ready()
	numbers, keys := map[float64]bool{}, map[string]bool{}
	for n := range 3 {
		got := f.forkedFacts("s" + strconv.Itoa(n))
		numbers[got.Random], keys[got.Key] = true, true
	}
	assert.Len(t, numbers, 3)
	assert.Len(t, keys, 3)
}

func TestExitCodeOfForkedEngineIsReported(t *testing.T) {
	f := newFixture(t)
	f.ready()
	tree, _ := f.fork("a", []string{"--exit", "7"}, nil)
	<-tree.Done()
	assert.Equal(t, 7, *tree.Exit().Code)
	tree, log := f.fork("b", nil, nil)
	f.line(log, 0, &facts{})
	require.NoError(t, syscall.Kill(tree.ID().PID, syscall.SIGKILL))
	<-tree.Done()
	assert.Equal(t, -9, *tree.Exit().Code)
}

func TestForkedEngineProcessesDoNotHoldItsPort(t *testing.T) {
	f := newFixture(t)
	f.ready()
	tree, log := f.fork("a", []string{"--child"}, nil)
	var child struct {
		Child int    `json:"child"`
		Port  int    `json:"port"`
		Kind  string `json:"kind"`
	}
	f.line(log, 1, &child)
	assert.Equal(t, "ForkProcess", child.Kind)
	assert.Contains(t, tree.Pids(), child.Child)
	require.NoError(t, syscall.Kill(tree.ID().PID, syscall.SIGKILL))
	<-tree.Done()
	f.eventually("the port is free, though the child lives", func() bool {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(child.Port))
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	})
	stat, err := procfs.Read(child.Child)
	require.NoError(t, err)
	assert.True(t, stat.Alive())
	require.NoError(t, tree.Kill(t.Context()))
	_, err = procfs.Read(child.Child)
	assert.ErrorIs(t, err, os.ErrNotExist, "the whole tree is gone")
}

func TestForkedEngineProcessesDoNotHoldItsSocket(t *testing.T) {
	f := newFixture(t)
	f.ready()
	dir, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "http")
	tree, log := f.fork("a", []string{"--child", "--uds", socket}, nil)
	var child struct{ Child int }
	f.line(log, 1, &child)
	require.NoError(t, syscall.Kill(tree.ID().PID, syscall.SIGKILL))
	<-tree.Done()
	f.eventually("the socket refuses, though the child lives", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	stat, err := procfs.Read(child.Child)
	require.NoError(t, err)
	assert.True(t, stat.Alive())
}

func TestForkedEngineShowsItsMarksBesideALongEnvironment(t *testing.T) {
	f := newFixture(t)
	f.ready()
	c, log := f.instance("a", nil, []string{"TOKEN=" + strings.Repeat("x", 200<<10)})
	c.Public = "127.0.0.1:8101"
	tree, err := f.pool.Fork(c)
	require.NoError(t, err)
	f.killLater(tree)
	var got facts
	f.line(log, 0, &got)
	assert.Equal(t, c.Public, got.Env["HOTSEAT_PUBLIC"])
	assert.True(t, got.Shown)
}

func TestEndOfEngineCoreIsSeenWhileWorkerLives(t *testing.T) {
	f := newFixture(t)
	f.ready()
	tree, log := f.fork("a", []string{"--core"}, nil)
	var made, seen struct{ Core, Worker, Ended int }
	f.line(log, 1, &made)
	assert.Subset(t, tree.Pids(), []int{made.Core, made.Worker})
	require.NoError(t, syscall.Kill(made.Core, syscall.SIGKILL))
	f.line(log, 2, &seen)
	assert.Equal(t, made.Core, seen.Ended)
	assert.Contains(t, tree.Pids(), made.Worker)
}

func TestLoadTimeVariableGetsItsOwnPreloader(t *testing.T) {
	for _, variable := range []string{"OMP_NUM_THREADS=3", "PYTHONHASHSEED=5", "LD_LIBRARY_PATH=/nowhere", "OPENSSL_CONF=/nowhere", "READ_WHEN_LOADED=yes", "HOTSEAT_READ_WHEN_LOADED=yes"} {
		t.Run(variable, func(t *testing.T) {
			f := newFixture(t)
			f.ready()
			name, value, _ := strings.Cut(variable, "=")
			assert.Contains(t, f.refusalReason(variable), name)
			f.ready(variable)
			got := f.forkedFacts("a", variable)
			assert.Equal(t, value, got.Env[name])
			if strings.HasSuffix(name, "READ_WHEN_LOADED") {
				assert.Equal(t, value, got.Read)
			}
			f.ready() // the common preloader still serves
			got = f.forkedFacts("b")
			assert.Equal(t, "unset", got.Read)
		})
	}
}

func TestOtherVariablesBelongToEachInstance(t *testing.T) {
	f := newFixture(t)
	f.ready()
	got := f.forkedFacts("a", "MY_SETTING=1", "CUDA_VISIBLE_DEVICES=1", "HF_TOKEN=x")
	assert.Equal(t, "1", got.Env["MY_SETTING"])
	assert.Equal(t, "1", got.Env["CUDA_VISIBLE_DEVICES"])
	got = f.forkedFacts("b")
	assert.NotContains(t, got.Env, "MY_SETTING", "siblings share nothing")
	assert.NotContains(t, got.Env, "HF_TOKEN")
}

func TestTextThatIsNotUTF8IsNotForked(t *testing.T) {
	f := newFixture(t)
	f.ready()
	assert.Contains(t, f.refusalReason("NAME=J\xf6rg"), "is not valid UTF-8")
	got := f.forkedFacts("a", "NAME=Jörg <&>\u2028")
	assert.Equal(t, "Jörg <&>\u2028", got.Env["NAME"])
}

func TestUnforkableInstallationGivesItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		reason string
	}{
		"no vllm": {func(f *fixture) {
			require.NoError(f.t, os.RemoveAll(filepath.Join(f.dir, "vllm")))
		}, "No module named 'vllm'"},
		"an import that raises": {func(f *fixture) {
			f.write("vllm/__init__.py", "raise RuntimeError('broken on purpose')\n")
		}, "RuntimeError: broken on purpose"},
		"an import that starts a thread": {func(f *fixture) {
			f.write("vllm/__init__.py", "import threading, signal\nthreading.Thread(target=signal.pause, name='the-thread', daemon=True).start()\nread = ''\n")
		}, "the-thread"},
		"an import that touches the accelerator": {func(f *fixture) {
			f.write("torch.py", "class cuda:\n    @staticmethod\n    def is_initialized():\n        return True\n")
			f.write("vllm/__init__.py", "import torch\nread = ''\n")
		}, "torch has initialised cuda"},
		"an import that looks for devices": {func(f *fixture) {
			f.write("torch.py", "class cuda:\n    is_initialized = lambda: False\n    _is_in_bad_fork = lambda: True\n")
			f.write("vllm/__init__.py", "import torch\nread = ''\n")
			f.write("vllm/platforms.py", "class current_platform:\n    device_type = 'cuda'\n    is_cpu = lambda: False\n")
		}, "refuses CUDA in a forked process"},
		"an import that leaves a file open": {func(f *fixture) {
			f.write("vllm/__init__.py", "audit = open(__file__ + '.log', 'a')\nread = ''\n")
		}, "vllm/__init__.py.log open"},
		"an import that changes the working folder": {func(f *fixture) {
			f.write("vllm/__init__.py", "import os\nos.chdir('/')\nread = ''\n")
		}, "changed the working folder"},
		"a command that does something first": {func(f *fixture) {
			f.script("import os\nos.environ['FIRST'] = '1'\nfrom vllm.engine import main\nmain()\n")
		}, "line 2 of "},
		"a command that imports something else": {func(f *fixture) {
			f.script("import sys\nimport patches\nfrom vllm.engine import main\n")
		}, "does more than import vllm"},
		"a command that is broken": {func(f *fixture) { f.script("import\n") }, "SyntaxError"},
		"an import that ends the process": {func(f *fixture) {
			f.write("vllm/__init__.py", "import os\nprint('good bye', flush=True)\nos._exit(3)\n")
		}, "good bye"},
		"an engine that decides in another place how it makes its processes": {func(f *fixture) {
			f.write("vllm/utils/system_utils.py", "")
			f.options.Recipe.Modules = []string{"vllm.entrypoints"}
		}, "this vLLM has no function get_mp_context"},
		"an import that hangs": {func(f *fixture) {
			f.write("vllm/__init__.py", "import signal\nsignal.pause()\n")
			f.options.LoadTime = time.Second
		}, "did not load the engine within 1s"},
		"more memory than is allowed": {func(f *fixture) { f.options.MemoryLimit = 1 }, "more than the limit of preloaders: 1 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.change)
			f.eventually("the reason is told", func() bool { return strings.Contains(f.refusalReason(), c.reason) })
			assert.Empty(t, f.pool.Never())
		})
	}
}

func TestCommandThatIsNotPythonIsNeverForked(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.options.Command = "/bin/sh" })
	assert.Contains(t, f.pool.Never(), "/bin/sh is not a Python script")
	assert.Contains(t, f.refusalReason(), "/bin/sh is not a Python script")
	assert.Empty(t, f.pool.List().Preloaders)
}

func TestHangingPreloaderIsReplacedAfterAnswerTime(t *testing.T) {
	f := newFixture(t, func(f *fixture) { f.options.AnswerTime = 200 * time.Millisecond })
	f.ready()
	first := f.pool.List().Preloaders[0].PID
	require.NoError(t, syscall.Kill(first, syscall.SIGSTOP))
	assert.Contains(t, f.refusalReason(), "did not fork")
	f.ready()
	assert.NotEqual(t, first, f.pool.List().Preloaders[0].PID)
	_, err := procfs.Read(first)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestKilledPreloaderRestartsAndItsInstancesLive(t *testing.T) {
	f := newFixture(t)
	f.ready()
	tree, log := f.fork("a", nil, nil)
	f.line(log, 0, &facts{})
	first := f.pool.List().Preloaders[0].PID
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	f.eventually("another one is there", func() bool {
		l := f.pool.List().Preloaders[0]
		return l.State == string(Ready) && l.PID != first
	})
	stat, err := procfs.Read(tree.ID().PID)
	require.NoError(t, err)
	assert.True(t, stat.Alive())
	f.fork("b", nil, nil)
}

func TestChangedInstallationCausesReload(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.write("vllm/__init__.py", "read = 'the new one'\n")
	assert.Contains(t, f.refusalReason(), "has changed")
	f.ready()
	got := f.forkedFacts("a")
	assert.Equal(t, "the new one", got.Read)
}

func TestPreloaderShowsNoSecretsOfInstances(t *testing.T) {
	f := newFixture(t)
	f.ready()
	_, log := f.fork("a", nil, []string{"HF_TOKEN=hf_verysecret"})
	f.line(log, 0, &facts{})
	l := f.pool.List().Preloaders[0]
	for _, path := range []string{"/proc/" + strconv.Itoa(l.PID) + "/cmdline", "/proc/" + strconv.Itoa(l.PID) + "/environ", filepath.Join(f.options.Dir, "@"+l.Name+".log")} {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, string(data), "verysecret", path)
	}
}

func TestLeastRecentlyUsedPreloaderMakesRoom(t *testing.T) {
	f := newFixture(t)
	f.ready()
	one := f.pool.List().Preloaders[0].MemoryBytes
	require.NotZero(t, one)
	f.set(func(o *Options) { o.MemoryLimit = one*2 + one/2 })
	f.ready("OMP_NUM_THREADS=2")
	assert.Contains(t, f.refusalReason("OMP_NUM_THREADS=3"), "their limit is", "the other is ready, and nobody has used it yet")
	f.forkedFacts("a", "OMP_NUM_THREADS=2")
	f.ready("OMP_NUM_THREADS=3")
	var kept []string
	for _, l := range f.pool.List().Preloaders {
		kept = append(kept, l.State)
	}
	assert.Equal(t, []string{"ready", "ready"}, kept)
	f.set(func(o *Options) { o.MemoryLimit = one })
	assert.Contains(t, f.refusalReason("OMP_NUM_THREADS=4"), "their limit is")
}

func TestIdlePreloaderIsEndedAndStartedAgainOnDemand(t *testing.T) {
	f := newFixture(t)
	f.ready()
	first := f.pool.List().Preloaders[0].PID
	f.set(func(o *Options) { o.IdleTime = time.Nanosecond })
	f.pool.endIdleAndStale()
	f.eventually("it is gone", func() bool {
		_, err := procfs.Read(first)
		return err != nil
	})
	f.eventually("so is its log", func() bool {
		logs, err := filepath.Glob(filepath.Join(f.options.Dir, "*.log"))
		return err == nil && len(logs) == 0
	})
	f.set(func(o *Options) { o.IdleTime = 0 })
	assert.Contains(t, f.refusalReason(), "loading")
	f.ready()
}

func TestInterpreterIsReadFromTheFirstLines(t *testing.T) {
	dir := t.TempDir()
	real, err := pyengine.Python()
	require.NoError(t, err)
	onPath, err := exec.LookPath("python3")
	require.NoError(t, err)
	for text, want := range map[string][]string{
		"#!" + real + "\n":                                            {real},
		"#!" + real + " -sP\n":                                        {real, "-sP"},
		"#! " + real + "\t-s -E \n":                                   {real, "-s -E"}, // one argument to the kernel, and so to Python
		"#!/usr/bin/env python3\n":                                    {onPath},
		"#!/usr/bin/env -S python3 -s -E\n":                           {onPath, "-s", "-E"},
		"#!/bin/sh\n'''exec' \"" + real + "\" \"$0\" \"$@\"\n' '''\n": {real},
	} {
		path := filepath.Join(dir, "vllm")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		got, err := Interpreter(path)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for text, reason := range map[string]string{
		"#!/bin/sh\nexec vllm\n": "its first line names /bin/sh", "\x7fELF": "names no interpreter", "#!\n": "names no interpreter",
		"#!/usr/bin/env python3 -s\n": "cannot find the interpreter", // env(1) looks for a program of that name
		"#!/no/such/python3\n":        "cannot find the interpreter", "": "names no interpreter",
	} {
		path := filepath.Join(dir, "vllm")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700))
		_, err := Interpreter(path)
		require.Error(t, err)
		assert.Contains(t, err.Error(), reason)
	}
}
