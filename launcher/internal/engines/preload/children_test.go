package preload

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// These tests check whether the engine's own processes are forked too. The preloader
// decides that by what it finds in the engine's installation.

// withDecidingFunction replaces the function by which the engine decides how it makes
// its processes.
func withDecidingFunction(python string) func(*fixture) {
	return func(f *fixture) {
		f.write("vllm/utils/system_utils.py", "import multiprocessing, os, sys\n"+python)
	}
}

// childClass returns the class of a process that a forked engine has made.
func (f *fixture) childClass(args ...string) string {
	f.t.Helper()
	var child struct {
		Kind string `json:"kind"`
	}
	_, log := f.fork("a", append([]string{"--child"}, args...), nil)
	f.line(log, 1, &child)
	return child.Kind
}

func TestEngineProcessesAreForkedInEveryRelease(t *testing.T) {
	const heeds = "    return multiprocessing.get_context(os.environ.get('VLLM_WORKER_MULTIPROC_METHOD', 'fork'))\n"
	for name, change := range map[string]func(*fixture){
		"with a release in its name": withDecidingFunction("def get_mp_context():\n" + heeds),
		"of older releases": func(f *fixture) {
			withDecidingFunction("from vllm.utils import get_mp_context\n")(f)
			f.write("vllm/utils/__init__.py", "import multiprocessing, os\ndef get_mp_context():\n"+heeds)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, change)
			f.ready()
			assert.Equal(t, "ForkProcess", f.childClass())
		})
	}
}

func TestModuleWithGetattrIsNotQueried(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/lazy.py", "def __getattr__(name):\n    if name.startswith('__'):\n        raise AttributeError(name)\n    import not_installed\n")
		f.options.Recipe.Modules = append([]string{"vllm.lazy"}, f.options.Recipe.Modules...)
	})
	f.ready()
	assert.Equal(t, "ForkProcess", f.childClass())
}

func TestEngineOptionThatForbidsForkingIsRespected(t *testing.T) {
	f := newFixture(t)
	f.ready()
	assert.Equal(t, "SpawnProcess", f.childClass("--numa-bind"), "vLLM's own function says so")
}

func TestSpawnSettingOfInstanceIsRespected(t *testing.T) {
	f := newFixture(t)
	f.ready()
	f.ready("VLLM_WORKER_MULTIPROC_METHOD=spawn")
	var child struct {
		Kind string `json:"kind"`
	}
	_, log := f.fork("a", []string{"--child"}, []string{"VLLM_WORKER_MULTIPROC_METHOD=spawn"})
	f.line(log, 1, &child)
	assert.Equal(t, "SpawnProcess", child.Kind)
}

func TestUnknownEngineIsNotForkedUntilItIsReplaced(t *testing.T) {
	for name, c := range map[string]struct{ python, reason string }{
		"it takes arguments": {"def get_mp_context(config):\n    pass\n", "get_mp_context(config) of vllm.utils.system_utils takes arguments"},
		"it fails":           {"def get_mp_context():\n    1 / 0\n", "get_mp_context of vLLM fails: ZeroDivisionError"},
		"it answers a name":  {"def get_mp_context():\n    return 'fork'\n", "get_mp_context of vLLM answers 'fork' when VLLM_WORKER_MULTIPROC_METHOD is fork"},
		"it heeds no switch": {"def get_mp_context():\n    return multiprocessing.get_context('spawn')\n", "get_mp_context of vLLM answers spawn when VLLM_WORKER_MULTIPROC_METHOD is fork"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, withDecidingFunction(c.python))
			f.eventually("the reason is told", func() bool { return strings.Contains(f.refusalReason(), c.reason) })
			assert.Empty(t, f.pool.Awaits(f.environ()), "nobody waits for what will not come")
			f.pool.mu.Lock()
			attempts := f.pool.all[0].attempt
			f.pool.mu.Unlock()
			assert.Equal(t, 1, attempts, "it is loaded once, and not again and again")
		})
	}
	t.Run("another engine is installed", func(t *testing.T) {
		f := newFixture(t, withDecidingFunction("def get_mp_context(config):\n    pass\n"), func(f *fixture) { f.options.LookEvery = 50 * time.Millisecond })
		f.eventually("the reason is told", func() bool { return strings.Contains(f.refusalReason(), "takes arguments") })
		withDecidingFunction("def get_mp_context():\n    return multiprocessing.get_context(os.environ['VLLM_WORKER_MULTIPROC_METHOD'])\n")(f)
		f.write("vllm/__init__.py", "read = 'another one'\n")
		f.write("vllm/entrypoints/__init__.py", "")
		f.ready()
	})
}
