package conformance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// program is an engine that can be started.
type program struct {
	path  string
	model string   // folder
	env   []string // beside this process's own
	args  []string // beside those that every engine gets
}

// standIn is the stand-in, built by TestMain.
var standIn program

func TestMain(m *testing.M) {
	dir, err := harness.Folder("hotseat-conformance-")
	if err == nil {
		standIn = program{
			path:  filepath.Join(dir, "enginesim"),
			model: filepath.Join(dir, "tiny-a"),
			env:   []string{"VLLM_SERVER_DEV_MODE=1", "HOTSEAT_SIMGPU_DIR="},
			// Slow enough that what is in flight can be met, and that the time
			// between the death of EngineCore and the end can be seen.
			args: []string{"--sim-token-time=10ms", "--sim-dead-delay=1s", "--sim-max-model-len=512"},
		}
		err = os.Mkdir(standIn.model, 0o755)
	}
	if err == nil {
		build := exec.Command("go", "build", "-o", standIn.path, "../enginesim")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// engine is a started program, with a session of its own.
type engine struct {
	program
	t       *testing.T
	address string
	server  *harness.Program // its API server
	out     string           // file with what it wrote, both streams
}

// serve starts a program as every engine of these tests is started, on a free
// port unless args name one. The environment in env wins over the program's.
func (p program) serve(t *testing.T, env []string, args ...string) *engine {
	t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	e := &engine{program: p, t: t, address: address, out: filepath.Join(t.TempDir(), "out.log")}
	out, err := os.Create(e.out)
	require.NoError(t, err)
	defer out.Close()
	cmd := exec.Command(p.path, slices.Concat([]string{
		"serve", p.model, "--served-model-name", "tiny-a", "--host", "127.0.0.1", "--port", port,
		"--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4",
	}, p.args, args)...)
	cmd.Env = slices.Concat(os.Environ(), p.env, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	e.server, err = harness.Start(cmd, out)
	require.NoError(t, err)
	t.Cleanup(e.cleanUp)
	return e
}

func (e *engine) url(path string) string { return "http://" + e.address + path }

// ready waits until the engine answers.
func (e *engine) ready() {
	e.t.Helper()
	e.eventually("the engine is ready", func() bool {
		if e.ended() {
			require.FailNow(e.t, "the engine ended", e.log())
		}
		h, _ := e.health()
		return h == "200"
	})
}

// health is the status of /health, "none" when nobody answers, and then why.
// How long an answer may take is bounded by patience.LongWait alone: a machine that
// stands still for seconds makes no engine silent.
func (e *engine) health() (string, error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.LongWait())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url("/health"), nil)
	require.NoError(e.t, err)
	resp, err := client.Do(req)
	if ctx.Err() != nil {
		require.FailNow(e.t, "/health took the request and did not answer in good time", e.log())
	}
	if err != nil {
		return "none", err
	}
	defer resp.Body.Close()
	return strconv.Itoa(resp.StatusCode), nil
}

func (e *engine) ended() bool { return e.server.HasEnded() }

// exitCode waits for the end of the API server; −N stands for signal N.
func (e *engine) exitCode() int {
	e.t.Helper()
	if err := e.server.Wait(patience.LongWait()); err != nil {
		require.FailNow(e.t, err.Error(), e.log())
	}
	status := e.server.State().Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return -int(status.Signal())
	}
	return status.ExitStatus()
}

func (e *engine) log() string {
	data, err := os.ReadFile(e.out)
	require.NoError(e.t, err)
	return string(data)
}

func (e *engine) eventually(what string, done func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(patience.LongWait())
	for !done() {
		if time.Now().After(deadline) {
			require.FailNow(e.t, "it never came true: "+what, e.log())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// process is a live process of the engine's session.
type process struct {
	pid   int
	title string // EngineCore, Worker, or "" for another
}

// processes lists the engine's session but for its API server and Python's
// resource tracker, in the order of their titles.
func (e *engine) processes() []process {
	var found []process
	api := e.server.PID()
	for _, p := range harness.Processes(func(p harness.Process) bool { return p.Session == api && p.PID != api }) {
		if strings.Contains(p.CommandLine(), "resource_tracker") {
			continue
		}
		title, ours := strings.CutPrefix(p.CommandLine(), "VLLM::")
		if !ours {
			title = ""
		}
		found = append(found, process{p.PID, title})
	}
	slices.SortFunc(found, func(a, b process) int { return strings.Compare(a.title, b.title) })
	return found
}

// titles names the processes of the engine.
func (e *engine) titles() []string {
	titles := []string{}
	for _, p := range e.processes() {
		titles = append(titles, p.title)
	}
	return titles
}

// find gives the process with a title.
func (e *engine) find(title string) int {
	e.t.Helper()
	for _, p := range e.processes() {
		if p.title == title {
			return p.pid
		}
	}
	require.FailNow(e.t, "there is no "+title, "there is %q", e.titles())
	return 0
}

// cleanUp ends what still runs. Python's resource tracker is left to end by
// itself: it takes away what the others left in shared memory.
func (e *engine) cleanUp() {
	if !e.ended() {
		e.server.Kill()
	}
	e.eventually("the processes are gone", func() bool {
		left := e.processes()
		for _, p := range left {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		return len(left) == 0
	})
	if e.t.Failed() {
		log := e.log()
		e.t.Logf("the engine's log ends with:\n%s", log[max(0, len(log)-4000):])
	}
}
