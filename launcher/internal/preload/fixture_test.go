package preload

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/cgroup"
	"hotseat.dev/hotseat/launcher/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that has to happen.
const patience = time.Minute

// fixture is a folder with an engine: a real Python script, with a package of
// the names that vLLM has and hardly anything in it. test/vllm does the same
// with vLLM itself.
type fixture struct {
	t       *testing.T
	dir     string // of the installation
	logs    string
	command string
	host    *process.Host
	pool    *Pool
	options Options
}

// The engine's files. Its main writes what it finds itself to be, as JSON, to
// its output, and does what its arguments say.
var engineFiles = map[string]string{
	"vllm/__init__.py": "import os\nread = os.environ.get('READ_WHEN_LOADED', 'unset')\n",
	"vllm/platforms.py": `
class Platform:
    device_type = "cpu"
    def is_cpu(self):
        return True
current_platform = Platform()
`,
	"vllm/utils/__init__.py": "",
	"vllm/utils/system_utils.py": `
import multiprocessing
def is_in_ray_actor():
    return False
def get_mp_context():
    return multiprocessing.get_context("spawn")
`,
	"vllm/engine.py": `
import json, os, random, signal, socket, sys, time
import vllm
from vllm.utils.system_utils import get_mp_context

def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return line.split()[1]

def facts():
    fds = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return {
        "argv": sys.argv, "env": dict(os.environ), "dir": os.getcwd(), "umask": status("Umask"), "fds": sorted(f for f in fds if not fds[f].startswith("/proc/")),
        "stdin": fds["0"], "leads": os.getsid(0) == os.getpid(), "ppid": os.getppid(), "ignored": status("SigIgn"), "blocked": status("SigBlk"),
        "comm": open("/proc/self/comm").read(), "cmdline": open("/proc/self/cmdline").read().rstrip("\0"), "random": random.random(), "read": vllm.read,
        "cgroup": [l for l in open("/proc/self/cgroup") if "i-" in l], "main": sys.modules["__main__"].__file__,
        "shown": "HOTSEAT_INSTANCE=" + os.environ["HOTSEAT_INSTANCE"] in open("/proc/self/environ").read().split("\0"),
    }

def child(port):
    signal.pause()

def main():
    print(json.dumps(facts()), flush=True)
    if "--exit" in sys.argv:
        sys.exit(int(sys.argv[sys.argv.index("--exit") + 1]))
    if "--child" in sys.argv:
        listener = socket.create_server(("127.0.0.1", 0))
        process = get_mp_context().Process(target=child, args=(0,))
        process.start()
        print(json.dumps({"child": process.pid, "port": listener.getsockname()[1], "kind": type(process).__name__}), flush=True)
    signal.pause()
`,
	"vllm-0.30.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.30.0\n",
}

var recipe = Recipe{
	Distribution: "vllm", Main: "vllm.engine:main", Modules: []string{"vllm.engine"}, ForkChildren: true, Versions: []string{"0.30.0"},
}

func newFixture(t *testing.T, change ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), logs: t.TempDir()}
	f.command = filepath.Join(f.dir, "vllm.cmd")
	for name, text := range engineFiles {
		f.write(name, text)
	}
	f.write("vllm.cmd", "#!"+python(t)+"\nimport sys\nfrom vllm.engine import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
	require.NoError(t, os.Chmod(f.command, 0o700))
	groups, err := cgroup.Open(cgroup.Options{Name: "hotseat-preload-test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	f.host, err = process.NewHost(process.Options{Mark: "preloadtest", Cgroups: groups, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	f.options = Options{
		Command: f.command, Recipe: recipe, Environ: f.environ(), Dir: filepath.Join(f.logs, "preloaders"), Host: f.host,
		LoadTime: patience, AnswerTime: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(f)
	}
	f.pool = New(f.options)
	t.Cleanup(func() {
		f.pool.Close()
		left, err := f.host.Find()
		assert.NoError(t, err)
		assert.Empty(t, left, "processes are left")
		assert.NoError(t, f.host.Close())
		assert.NoError(t, groups.Close())
	})
	f.pool.Begin()
	return f
}

// python is a real interpreter: the one on PATH may be a script that looks for it.
func python(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("python3", "-c", "import os, sys; print(os.path.realpath(sys.executable))").Output()
	require.NoError(t, err, "the tests need python3")
	return strings.TrimSpace(string(out))
}

func (f *fixture) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "COMMON=1", "PYTHONDONTWRITEBYTECODE=1"}
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o600))
}

func (f *fixture) eventually(what string, happened func() bool) {
	f.t.Helper()
	require.Eventually(f.t, happened, patience, 5*time.Millisecond, what)
}

// ready waits until an instance with these further variables would be forked.
func (f *fixture) ready(env ...string) {
	f.t.Helper()
	var last error
	f.eventually("a preloader is ready", func() bool {
		last = f.pool.Check(append(f.environ(), env...))
		return last == nil
	})
}

// instance is one with its own log.
func (f *fixture) instance(name string, args, env []string) (process.Command, string) {
	f.t.Helper()
	path := filepath.Join(f.logs, name+".log")
	output, err := os.Create(path)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = output.Close() })
	return process.Command{
		Name: name, Path: f.command, Args: append([]string{f.command}, args...), Env: append(f.environ(), env...), Output: output,
	}, path
}

// fork forks an instance, and has it killed when the test ends.
func (f *fixture) fork(name string, args, env []string) (tree *process.Process, log string) {
	f.t.Helper()
	c, log := f.instance(name, args, env)
	tree, err := f.pool.Fork(c)
	require.NoError(f.t, err)
	f.killLater(tree)
	return tree, log
}

func (f *fixture) killLater(tree *process.Process) {
	f.t.Cleanup(func() { assert.NoError(f.t, tree.Kill(f.t.Context())) })
}

// line waits for a line that an instance writes of itself.
func (f *fixture) line(log string, n int, into any) {
	f.t.Helper()
	f.eventually("the engine writes", func() bool {
		data, err := os.ReadFile(log)
		require.NoError(f.t, err)
		lines := strings.SplitAfter(string(data), "\n")
		return len(lines) > n && strings.HasSuffix(lines[n], "\n") && json.Unmarshal([]byte(lines[n]), into) == nil
	})
}

// refused gives the reason why an instance with these further variables is not forked.
func (f *fixture) refused(env ...string) string {
	f.t.Helper()
	c, _ := f.instance(fmt.Sprintf("refused-%d", time.Now().UnixNano()), nil, env)
	tree, err := f.pool.Fork(c)
	if err == nil {
		f.killLater(tree)
	}
	not, ok := errors.AsType[*NotForkedError](err)
	require.True(f.t, ok, "%v", err)
	return not.Reason
}
