package preload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

func TestNVMLIsShutDownBeforeTheFork(t *testing.T) {
	change, env := asksNVML(t)
	f := newFixture(t, change)
	f.ready(env...)
	_, log := f.fork("a", nil, env)
	var got asked
	f.line(log, 0, &got)
	assert.Equal(t, got.Imported, got.Now)
	assert.Empty(t, got.Children, "it asks NVML itself")
}

func TestForkedEngineAsksNVMLByAnotherProcess(t *testing.T) {
	change, env := asksNVML(t, "LEAVES=1")
	said := &lines{}
	f := newFixture(t, change, func(f *fixture) { f.options.Logger = slog.New(slog.NewTextHandler(said, nil)) })
	f.ready(env...)
	assert.Contains(t, said.text(), "anon_inode:[eventfd], cuda0001", "the log names what NVML leaves")
	assert.Empty(t, f.childrenOfPreloader(), "the process that asked NVML during the imports has ended")
	c, log := f.instance("execd", nil, env)
	tree, err := f.host.Start(c)
	require.NoError(t, err)
	f.killLater(tree)
	var execd, forked, core asked
	f.line(log, 0, &execd)
	assert.Equal(t, []string{"cuda0001"}, execd.Threads, "the stand-in leaves a thread")
	assert.Equal(t, []any{8.0, 6.0}, execd.Stale)

	_, log = f.fork("forked", []string{"--core"}, env)
	f.line(log, 0, &forked)
	assert.Equal(t, execd.Imported, forked.Imported)
	assert.Equal(t, execd.Now, forked.Now)
	assert.Empty(t, forked.Threads)
	assert.Len(t, forked.Children, 1, "the process that asks")
	assert.Equal(t, "Invalid Argument", forked.Stale, "handles are those of the process that asks")
	f.line(log, 1, &core)
	assert.Equal(t, execd.Now, core.Now, "EngineCore asks too")
	assert.Empty(t, core.Threads)
	assert.Len(t, core.Children, 1)
	assert.NotEqual(t, forked.Children, core.Children, "by a process of its own")
}

func TestProcessThatAsksNVMLEndsWithItsEngine(t *testing.T) {
	change, env := asksNVML(t, "LEAVES=1")
	f := newFixture(t, change)
	f.ready(env...)
	tree, log := f.fork("a", []string{"--end"}, env)
	var got asked
	f.line(log, 0, &got)
	require.Len(t, got.Children, 1)
	<-tree.Done()
	f.eventually("it has ended", func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", got.Children[0]))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func TestEngineThatLoadsNVMLItselfSpawns(t *testing.T) {
	change, env := asksNVML(t, "LEAVES=1")
	f := newFixture(t, change)
	f.ready(env...)
	_, log := f.fork("a", []string{"--load", "--core"}, env)
	f.eventually("it makes EngineCore", func() bool {
		data, err := os.ReadFile(log)
		require.NoError(t, err)
		return strings.Contains(string(data), `"kind"`)
	})
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Contains(t, string(data), `"kind": "SpawnProcess"`)
	assert.Contains(t, string(data), "libnvidia-ml.so.1 is loaded")
}

func TestNVMLThatLeavesAThreadIsRefusedForGood(t *testing.T) {
	change, env := asksNVML(t, "LEAVES=1")
	said := &lines{}
	f := newFixture(t, change, func(f *fixture) {
		f.options.Logger = slog.New(slog.NewTextHandler(said, nil))
		f.write("vllm/native.py", `
import ctypes, os, _ctypes
handle = _ctypes.dlopen("libnvidia-ml.so.1", os.RTLD_NOW)  # as compiled code does
assert ctypes.CFUNCTYPE(ctypes.c_int)(_ctypes.dlsym(handle, "nvmlInit"))() == 0
`)
		f.options.Recipe.Modules = append(f.options.Recipe.Modules, "vllm.native")
	})
	f.eventually("the log says that no other try follows", func() bool { return strings.Contains(said.text(), "can never fork this engine") })
	reason := f.refusalReason(env...)
	assert.Contains(t, reason, "the NVIDIA driver's NVML leaves this behind in each process that asks it: anon_inode:[eventfd], cuda0001")
	assert.Contains(t, reason, "the import of vllm.native has loaded libnvidia-ml.so.1 by itself")
}

func TestPreloaderRefusesWhereNVMLIsNotAsked(t *testing.T) {
	for how, reason := range map[string]string{
		"hangs": "the process that asks NVML did not answer nvml",
		"dies":  "the process that asks NVML ended during nvmlDeviceGetCount_v2, with code -9",
	} {
		t.Run(how, func(t *testing.T) {
			change, env := asksNVML(t, "LEAVES=1", "COUNT="+how)
			f := newFixture(t, change, func(f *fixture) {
				// vLLM keeps errors to itself, and takes another platform.
				f.write("vllm/asking.py", "import contextlib\nwith contextlib.suppress(Exception):\n    from vllm.asking_nvml import main\n")
				f.write("vllm/asking_nvml.py", askingEngine)
				f.options.Recipe.NVMLSeconds = 0.5
				if how == "dies" {
					f.options.Recipe.NVMLSeconds = patience.Wait().Seconds()
				}
			})
			f.eventually("the reason is told", func() bool { return strings.Contains(f.refusalReason(env...), reason) })
		})
	}
}

func TestPreloaderRefusesWhereNVMLCannotBeAskedByAnotherProcess(t *testing.T) {
	for argument, reason := range map[string]string{
		"ctypes.c_double(1)":             "nvmlInitWithFlags of NVML got no answer: ArgumentError: the process that asks NVML takes no c_double",
		"Pair()":                         "takes no Pair",
		"ctypes.pointer(ctypes.c_int())": "given an address that the process that asks NVML does not know",
	} {
		t.Run(argument, func(t *testing.T) {
			change, env := asksNVML(t, "LEAVES=1")
			f := newFixture(t, change, func(f *fixture) {
				// vLLM keeps errors to itself, and takes another platform.
				f.write("vllm/odd.py", `
import contextlib, ctypes
class Pair(ctypes.Structure):
    _fields_ = [("one", ctypes.c_int), ("other", ctypes.c_int)]
with contextlib.suppress(Exception):
    ctypes.CDLL("libnvidia-ml.so.1").nvmlInitWithFlags(`+argument+`)
`)
				f.options.Recipe.Modules = append(f.options.Recipe.Modules, "vllm.odd")
			})
			last := ""
			f.eventually("the reason is told", func() bool {
				last = f.refusalReason(env...)
				return strings.Contains(last, "it refuses to fork engines")
			})
			assert.Contains(t, last, reason)
		})
	}
}

// TestAnswersOfNVMLAreThoseToTheirQuestions has a signal end a call, and leaves an answer that
// nobody has read.
func TestAnswersOfNVMLAreThoseToTheirQuestions(t *testing.T) {
	change, env := asksNVML(t, "LEAVES=1", "CAUGHT="+filepath.Join(t.TempDir(), "caught"))
	f := newFixture(t, change)
	f.ready(env...)
	for how, line := range map[string]int{"--interrupt": 0, "--late": 1} { // before the line, the failure is told
		t.Run(how, func(t *testing.T) {
			_, log := f.fork("forked"+how, []string{how}, env)
			var got asked
			f.line(log, line, &got)
			assert.Equal(t, got.Imported, got.Now)
			assert.Len(t, got.Children, 1)
			if how == "--late" {
				assert.Equal(t, "another", got.Late, "an unknown error")
			}
		})
	}
}

// childrenOfPreloader returns the processes that the common preloader has.
func (f *fixture) childrenOfPreloader() []string {
	f.t.Helper()
	f.pool.mu.Lock()
	pid := f.pool.all[0].run.tree.ID().PID
	f.pool.mu.Unlock()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(f.t, err)
	return strings.Fields(string(data))
}

func TestLeftByNVML(t *testing.T) {
	python, err := pyengine.Python()
	require.NoError(t, err)
	ask := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
		defer cancel()
		left, err := LeftByNVML(ctx, []string{python})
		require.NoError(t, err)
		return left
	}
	t.Setenv("LD_LIBRARY_PATH", filepath.Dir(buildLibrary(t, "libnvidia-ml.so.1", nvml)))
	assert.Empty(t, ask())
	t.Setenv("LEAVES", "1")
	assert.Equal(t, "anon_inode:[eventfd], cuda0001", ask())
}
