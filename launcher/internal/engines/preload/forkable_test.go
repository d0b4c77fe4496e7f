package preload

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// starter is a library that starts a thread when it is loaded.
const starter = `
#include <pthread.h>
#include <unistd.h>
static void *idle(void *unused) { for (;;) pause(); }
__attribute__((constructor)) static void start(void) {
	pthread_t thread;
	pthread_create(&thread, 0, idle, 0);
	pthread_setname_np(thread, NAME);
}
`

// A process with pyarrow has a thread of jemalloc, and a forked one needs none.
func TestAThreadOfJemallocIsAllowed(t *testing.T) {
	loads := func(t *testing.T, name string) func(*fixture) {
		library := buildLibrary(t, "libstarter.so", "#define _GNU_SOURCE\n#define NAME \""+name+"\"\n"+starter)
		return func(f *fixture) {
			f.write("vllm/arrow.py", "import ctypes\nctypes.CDLL('"+library+"')\n")
			f.options.Recipe.Modules = append([]string{"vllm.arrow"}, f.options.Recipe.Modules...)
		}
	}
	t.Run("jemalloc's", func(t *testing.T) {
		f := newFixture(t, loads(t, "jemalloc_bg_thd"))
		f.ready()
		f.forkedFacts("a")
	})
	t.Run("another's", func(t *testing.T) {
		f := newFixture(t, loads(t, "worker"))
		f.eventually("it refuses", func() bool { return f.pool.List().Preloaders[0].Reason != "" })
		assert.Contains(t, f.refusalReason(), "1 more thread(s) run in the preloader, and a fork would lose them: worker")
	})
	t.Run("Python's, of that name", func(t *testing.T) {
		f := newFixture(t, func(f *fixture) {
			f.write("vllm/named.py", "import threading\nthreading.Thread(target=threading.Event().wait, name='jemalloc_bg_thd', daemon=True).start()\n")
			f.options.Recipe.Modules = append([]string{"vllm.named"}, f.options.Recipe.Modules...)
		})
		f.eventually("it refuses", func() bool { return f.pool.List().Preloaders[0].Reason != "" })
		assert.Contains(t, f.refusalReason(), "jemalloc_bg_thd")
	})
}

func TestPreloaderThatRefusedTwiceLoadsAChangedInstallation(t *testing.T) {
	said := &lines{}
	f := newFixture(t, func(f *fixture) {
		f.options.Logger = slog.New(slog.NewTextHandler(said, nil))
		f.options.LookEvery = 50 * time.Millisecond
		f.write("vllm/threaded.py", "import threading\nthreading.Thread(target=threading.Event().wait, name='worker', daemon=True).start()\n")
		f.options.Recipe.Modules = append([]string{"vllm.threaded"}, f.options.Recipe.Modules...)
	})
	refusals := func() int { return strings.Count(said.text(), "a preloader ended") }
	f.eventually("it refuses twice", func() bool { return strings.Contains(said.text(), "again_in=5m0s") })
	assert.Never(t, func() bool { return refusals() > 2 }, 20*f.options.LookEvery, f.options.LookEvery, "it refuses again, though nothing has changed")
	f.write("vllm/threaded.py", "")
	f.write("another_package.py", "") // an installer changes the folder of packages
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
	library := buildLibrary(t, "libcuda.so.1", driver)
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

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	kept strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// buildLibrary compiles a shared library, and returns its path.
func buildLibrary(t *testing.T, name, source string) string {
	t.Helper()
	dir := t.TempDir()
	path, code := filepath.Join(dir, name), filepath.Join(dir, "library.c")
	require.NoError(t, os.WriteFile(code, []byte(source), 0o600))
	out, err := exec.CommandContext(t.Context(), "gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-Wl,-soname,"+name, "-o", path, code).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
