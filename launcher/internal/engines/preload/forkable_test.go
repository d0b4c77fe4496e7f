package preload

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Some libraries start threads when they are loaded, end them before a fork, and
// start them again on demand.
func TestThreadsThatEndBeforeForkAreAllowed(t *testing.T) {
	f := newFixture(t, func(f *fixture) {
		f.write("vllm/threads.py", `
import os, threading
over = threading.Event()
thread = threading.Thread(target=over.wait)
thread.start()

def end():
    over.set()
    thread.join()
    while len(os.listdir("/proc/self/task")) > 1:  # Python's join returns before the kernel's end of it
        pass

os.register_at_fork(before=end)
`)
		f.options.Recipe.Modules = append([]string{"vllm.threads"}, f.options.Recipe.Modules...)
	})
	f.ready()
	f.forkedFacts("a")
}

// driver stands in for the CUDA driver, which this machine does not have. It knows
// whether it was initialised (cuda.h).
const driver = `
static int up;
int cuInit(unsigned flags) { up = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return up ? 0 : 3; }
`

func TestCudaDriverMayBeLoadedButNotInitialised(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	source := filepath.Join(filepath.Dir(library), "driver.c")
	require.NoError(t, os.WriteFile(source, []byte(driver), 0o600))
	out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	loads := func(more string) func(*fixture) {
		return func(f *fixture) {
			f.write("vllm/gpu.py", "import ctypes\ncuda = ctypes.CDLL('"+library+"')\n"+more)
			f.options.Recipe.Modules = append([]string{"vllm.gpu"}, f.options.Recipe.Modules...)
		}
	}
	t.Run("loaded", func(t *testing.T) {
		newFixture(t, loads("")).ready()
	})
	t.Run("initialised", func(t *testing.T) {
		f := newFixture(t, loads("cuda.cuInit(0)\n"))
		f.eventually("it refuses", func() bool { return f.pool.List().Preloaders[0].Reason != "" })
		reason := f.refusalReason()
		assert.Contains(t, reason, "accelerator")
		assert.Contains(t, reason, "libcuda.so.1")
	})
}
