package preload

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

// inspection is what an engine learns from the process that inspects its model.
type inspection struct {
	Class   string `json:"class"`
	Plugins bool   `json:"plugins"` // whether the process has loaded plugins
	New     bool   `json:"new"`     // whether the process is a new Python
	PID     int    `json:"pid"`
	Error   string `json:"error"`
}

// withRegistry has preloaders load the module in which vLLM inspects models.
func withRegistry(f *fixture) {
	f.options.Recipe.Modules = append([]string{"vllm.model_executor.models.registry"}, f.options.Recipe.Modules...)
	f.options.Recipe.InspectSeconds = 60
}

// inspected waits for what an engine has learnt, which it writes to its log.
func (f *fixture) inspected(log string) inspection {
	f.t.Helper()
	var got struct{ Inspected *inspection }
	f.eventually("the engine has inspected its model", func() bool {
		data, err := os.ReadFile(log)
		require.NoError(f.t, err)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, `{"inspected"`) && strings.HasSuffix(line, "\n") {
				return json.Unmarshal([]byte(line), &got) == nil
			}
		}
		return false
	})
	require.NotNil(f.t, got.Inspected)
	return *got.Inspected
}

// inspectBoth inspects a model in an engine that is started by exec, and in one that is
// forked. It returns the log of the forked one too.
func (f *fixture) inspectBoth(how string) (execd, forked inspection, log string) {
	f.t.Helper()
	c, log := f.instance("execd", []string{"--inspect", how}, nil)
	tree, err := f.host.Start(c)
	require.NoError(f.t, err)
	f.killLater(tree)
	execd = f.inspected(log)
	_, log = f.fork("forked", []string{"--inspect", how}, nil)
	return execd, f.inspected(log), log
}

func TestForkedEngineInspectsItsModelByFork(t *testing.T) {
	f := newFixture(t, withRegistry)
	f.ready()
	want, got, log := f.inspectBoth("well")
	assert.True(t, want.New)
	assert.False(t, got.New, "no new Python is started")
	assert.True(t, got.Plugins)
	_, err := procfs.Read(got.PID)
	require.ErrorIs(t, err, os.ErrNotExist, "the engine has reaped the process")
	want.New, want.PID, got.New, got.PID = false, 0, false, 0
	assert.Equal(t, want, got)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "noise", "vLLM drops the output of the process")
	assert.NotContains(t, string(text), "hotseat:")
}

func TestFailedInspectionIsReportedByTheEngineItself(t *testing.T) {
	f := newFixture(t, withRegistry)
	f.ready()
	want, got, _ := f.inspectBoth("fail")
	assert.Contains(t, want.Error, "ValueError: no such class")
	assert.Equal(t, want, got)
}

func TestInspectionWithoutResultFromForkStartsNewPython(t *testing.T) {
	for name, c := range map[string]struct {
		how, reason string
		env         []string
		change      func(*fixture)
	}{
		"the forked process dies": {how: "die", reason: "a forked process could not inspect it"},
		"the forked process hangs": {how: "hang", reason: "a forked process did not inspect it within 0.2 s", change: func(f *fixture) {
			f.options.Recipe.InspectSeconds = 0.2
		}},
		"the engine has another thread": {how: "thread", reason: "a fork would lose threads: the-thread"},
		"the engine has initialised CUDA": {how: "well", reason: "torch has initialised cuda", env: []string{"UP=1"}, change: func(f *fixture) {
			f.write("torch.py", "import os\nclass cuda:\n    is_initialized = lambda: os.environ.get('UP') == '1'\n")
			f.write("vllm/utils/system_utils.py", "import torch\n"+decidingFunction)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, withRegistry, func(f *fixture) {
				if c.change != nil {
					c.change(f)
				}
			})
			f.ready()
			_, log := f.fork("a", []string{"--inspect", c.how}, c.env)
			got := f.inspected(log)
			assert.True(t, got.New, "the engine's own way is taken")
			assert.Equal(t, "Model", got.Class)
			text, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Contains(t, string(text), "hotseat: starting a new process to inspect the model, because ")
			assert.Contains(t, string(text), c.reason)
			for _, b := range f.inspecting() {
				_, err := procfs.Read(b.PID)
				assert.ErrorIs(t, err, os.ErrNotExist, "no forked process is left")
			}
		})
	}
}

// decidingFunction is one that the preloader accepts.
const decidingFunction = `
import multiprocessing, os

def get_mp_context():
    return multiprocessing.get_context(os.environ.get("VLLM_WORKER_MULTIPROC_METHOD", "fork"))
`

// inspecting lists the processes that engines have forked to inspect a model.
func (f *fixture) inspecting() (found []pyengine.Birth) {
	f.t.Helper()
	births, err := pyengine.Births(f.dir)
	require.NoError(f.t, err)
	for _, b := range births {
		if b.Generation > 2 {
			found = append(found, b)
		}
	}
	return found
}

func TestInspectingProcessEndsWithItsEngine(t *testing.T) {
	f := newFixture(t, withRegistry)
	f.ready()
	tree, _ := f.fork("a", []string{"--inspect", "hang"}, nil)
	f.eventually("it inspects", func() bool { return len(f.inspecting()) > 0 })
	require.NoError(t, syscall.Kill(tree.ID().PID, syscall.SIGKILL))
	<-tree.Done()
	f.eventually("it has ended", func() bool {
		stat, err := procfs.Read(f.inspecting()[0].PID)
		return err != nil || !stat.Alive()
	})
}

func TestUnknownInspectionIsLeftToTheEngine(t *testing.T) {
	for name, c := range map[string]struct{ python, reason string }{
		"it has another name":    {"def inspect(fn):\n    pass\n", "vllm.model_executor.models.registry has no function _run_in_subprocess"},
		"it takes more than one": {"def _run_in_subprocess(fn, seconds):\n    pass\n", "_run_in_subprocess(fn, seconds) of vllm.model_executor.models.registry does not take a function alone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, withRegistry, func(f *fixture) { f.write("vllm/model_executor/models/registry.py", c.python) })
			f.ready()
			f.pool.mu.Lock()
			reason := f.pool.all[0].hello.InspectsByExec
			f.pool.mu.Unlock()
			assert.Equal(t, c.reason, reason)
			f.forkedFacts("a")
		})
	}
}
