package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// asEngine makes the test binary run as the engine.
const asEngine = "ENGINESIM_TEST_AS_ENGINE"

func TestMain(m *testing.M) {
	tree.Child()
	if os.Getenv(asEngine) != "" {
		os.Exit(run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// eventually waits until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience.Wait()); !ok(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "waited in vain: %s", what)
	}
}

// proc is an engine under test.
type proc struct {
	t    *testing.T
	cmd  *exec.Cmd
	port int
	log  string // file that all its processes write to
	done chan struct{}
}

// setup says how an engine is started.
type setup struct {
	args []string // after `serve`, beside --host and --port
	env  []string
	gpus string // folder of simulated GPUs; "" for none
	port int    // 0 for a free one
	dev  bool   // no developer endpoints when false
}

// launch starts an engine, and sees to it that nothing is left of it.
func launch(t *testing.T, s setup) *proc {
	t.Helper()
	if s.port == 0 {
		s.port = freePort(t)
	}
	args := append([]string{"serve"}, s.args...)
	p := command(t, s, append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(s.port))...)
	p.port = s.port
	return p
}

// command starts this program with args as they are.
func command(t *testing.T, s setup, args ...string) *proc {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	p := &proc{t: t, log: log.Name(), done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), os.Args[0], args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p.cmd.Env = append(os.Environ(), asEngine+"=1", "HOTSEAT_SIMGPU_DIR="+s.gpus,
		"GORACE=atexit_sleep_ms=0") // or each process takes a second to end under -race
	if s.dev {
		p.cmd.Env = append(p.cmd.Env, "VLLM_SERVER_DEV_MODE=1")
	}
	p.cmd.Env = append(p.cmd.Env, s.env...)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.clean)
	return p
}

// clean ends whatever is left, and checks what it wrote.
func (p *proc) clean() {
	for _, pid := range p.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.done
	eventually(p.t, "the end of all processes", func() bool { return len(p.processes()) == 0 })
	text := p.text()
	require.NotContains(p.t, text, "DATA RACE")
	require.NotContains(p.t, text, "panic:")
	if p.t.Failed() {
		p.t.Logf("the engine's log:\n%s", text)
	}
}

// processes lists what lives of the engine: whoever writes to its log.
func (p *proc) processes() []int {
	links, err := filepath.Glob("/proc/[0-9]*/fd/1")
	require.NoError(p.t, err)
	var pids []int
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == p.log {
			pid, err := strconv.Atoi(strings.Split(l, "/")[2])
			require.NoError(p.t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// find waits for the one process with that title. A process that is being started has the
// title of its parent until it execs.
func (p *proc) find(title string) int {
	p.t.Helper()
	var found []int
	eventually(p.t, "one process "+title, func() bool {
		found = slices.DeleteFunc(p.processes(), func(pid int) bool { return titleOf(pid) != title })
		return len(found) == 1
	})
	return found[0]
}

func titleOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	title, _, _ := bytes.Cut(data, []byte{0})
	return string(title)
}

func (p *proc) text() string {
	data, err := os.ReadFile(p.log)
	require.NoError(p.t, err)
	return string(data)
}

// says waits for a line of the log.
func (p *proc) says(text string) {
	p.t.Helper()
	eventually(p.t, "the log line "+text, func() bool { return strings.Contains(p.text(), text) })
}

// ready waits until /health says so.
func (p *proc) ready() *proc {
	p.t.Helper()
	eventually(p.t, "health", func() bool {
		select {
		case <-p.done:
			require.FailNow(p.t, "the engine ended while it started", p.text())
		default:
		}
		r, err := p.try("GET", "/health", "")
		return err == nil && r.status == http.StatusOK
	})
	return p
}

// exit waits for the end, and gives the exit code, minus N for signal N.
func (p *proc) exit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience.Wait()):
		require.FailNow(p.t, "the engine did not end")
	}
	ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ws.Signaled() {
		return -int(ws.Signal())
	}
	return ws.ExitStatus()
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *proc) signal(pid int, sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, syscall.Kill(pid, sig))
}

// answer is what the engine said.
type answer struct {
	status int
	header http.Header
	body   string
}

// client keeps no connections, so that none outlives its request.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (p *proc) try(method, path, body string) (answer, error) {
	return p.tryFor(patience.Wait(), method, path, body)
}

func (p *proc) tryFor(limit time.Duration, method, path, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", p.port, path), strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return send(r)
}

func send(r *http.Request) (answer, error) {
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(data)}, errors.Join(err, resp.Body.Close())
}

// call is one request that must be answered.
func (p *proc) call(method, path, body string) answer {
	p.t.Helper()
	a, err := p.try(method, path, body)
	require.NoError(p.t, err)
	return a
}

// ok is one request that must be answered with 200.
func (p *proc) ok(method, path, body string) string {
	p.t.Helper()
	a := p.call(method, path, body)
	require.Equal(p.t, http.StatusOK, a.status, a.body)
	return a.body
}

// complete asks for a completion and gives its text and finish reason.
func (p *proc) complete(body string) (text, finish string) {
	p.t.Helper()
	return completion(p.t, p.ok("POST", "/v1/completions", body))
}

func completion(t *testing.T, body string) (text, finish string) {
	t.Helper()
	var got struct {
		Choices []struct {
			Text   string `json:"text"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Len(t, got.Choices, 1)
	return got.Choices[0].Text, got.Choices[0].Finish
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := harness.FreePort()
	require.NoError(t, err)
	return int(port)
}

const gib = 1 << 30

// gpus makes a folder of n simulated GPUs of 80 GiB.
func gpus(t *testing.T, n int) *simgpu.Dir {
	t.Helper()
	var list []simgpu.GPU
	for i := range n {
		list = append(list, simgpu.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Product: "Simulated", MemoryTotalBytes: 80 * gib})
	}
	d, err := simgpu.Create(t.TempDir(), list)
	require.NoError(t, err)
	return d
}

// used is the memory of a GPU that processes hold.
func used(t *testing.T, d *simgpu.Dir, uuid string) uint64 {
	t.Helper()
	holders, err := d.Holders(uuid)
	require.NoError(t, err)
	sum := uint64(0)
	for _, h := range holders {
		sum += h.Bytes
	}
	return sum
}
