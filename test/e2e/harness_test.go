package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/conformance/openapi"
	"hotseat.dev/hotseat/test/enginesim/recorder"
	"hotseat.dev/hotseat/test/helpers/harness"
	testpatience "hotseat.dev/hotseat/test/helpers/patience"
)

// patience bounds every wait for something that has to happen. It is no
// measure of speed.
var patience = testpatience.Wait()

// The programs under test, built by TestMain.
var bin struct{ launcher, enginesim string }

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == commandServer {
		os.Exit(runCommandServer(os.Args[2:]))
	}
	dir, err := harness.Folder("hotseat-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin.launcher, bin.enginesim = filepath.Join(dir, "launcher"), filepath.Join(dir, "enginesim")
	if err := harness.Build(context.Background(), "../..", dir, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch", "test/enginesim"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Node is a machine of a test: a state folder, simulated GPUs, and a launcher
// that may be killed and started again.
type Node struct {
	t      *testing.T
	State  string
	SimFS  string // folder of the simulated GPUs
	URL    string
	args   []string
	env    []string
	config string   // the launcher's configuration file; empty: it has none
	under  []string // a program that runs the launcher, with its arguments; empty: none

	output string

	mu      sync.Mutex
	program *harness.Program // the launcher that was started last; nil: none was

	Token    string            // sent with every call; empty: none
	Document *openapi.Document // the API's, which every answer is held against
	client   *http.Client
	readOnce sync.Once
	wrong    complaints
}

// complaints are what was found wrong with answers.
type complaints struct {
	mu  sync.Mutex
	all []error
}

func (c *complaints) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

// GPU gives the UUID of a simulated GPU.
func GPU(n int) string { return harness.GPU(n) }

// NewNode makes a node with two simulated GPUs and starts its launcher.
func NewNode(t *testing.T, flags ...string) *Node {
	t.Helper()
	n := NewStoppedNode(t, flags...)
	n.Start()
	return n
}

// NewStoppedNode makes a node whose launcher does not run yet.
func NewStoppedNode(t *testing.T, flags ...string) *Node {
	t.Helper()
	root, temporary := t.TempDir(), shortDir(t)
	n := &Node{t: t, State: filepath.Join(root, "state"), SimFS: filepath.Join(root, "simgpu"), output: filepath.Join(root, "launcher.log")}
	addr := freeAddress(t)
	n.URL = "http://" + addr
	n.args = append([]string{
		"serve", "--listen", addr, "--gpus", "simulated:2", "--state-dir", n.State, "--vllm", bin.enginesim, "--log-level", "debug", "--front-door=",
	}, flags...)
	n.env = append(os.Environ(), "HOTSEAT_SIMGPU_DIR="+n.SimFS, "TMPDIR="+temporary)
	t.Cleanup(n.cleanUp)
	return n
}

// shortDir makes a folder in which sockets have room. It is removed after the test.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := harness.TemporaryFolder()
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	return address
}

// Start starts the launcher and waits until it serves.
func (n *Node) Start() {
	n.t.Helper()
	log, err := os.Create(n.output)
	require.NoError(n.t, err)
	defer log.Close()
	argv := slices.Concat(n.under, []string{bin.launcher}, n.args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = n.env
	program, err := harness.Start(cmd, log)
	require.NoError(n.t, err)
	n.mu.Lock()
	n.program = program
	n.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), patience) // the clean-up starts it too
	defer stop()
	if err := program.AwaitServing(ctx, strings.TrimPrefix(n.URL, "http://")); err != nil {
		require.FailNow(n.t, err.Error(), n.Log())
	}
}

// started is the launcher that was started last.
func (n *Node) started() *harness.Program {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.program
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (l *lockedWriter) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}

// Log is what the launcher that was started last wrote.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.output)
	if !errors.Is(err, fs.ErrNotExist) { // it was not started yet
		require.NoError(n.t, err)
	}
	return string(text)
}

// PID is the launcher's.
func (n *Node) PID() int { return n.started().PID() }

// Signal sends to the launcher.
func (n *Node) Signal(s syscall.Signal) { n.started().Signal(s) }

// Kill9 kills the launcher and waits until it is gone.
func (n *Node) Kill9() { n.started().Kill() }

// Stop ends the launcher as an operator would, and gives its exit code.
func (n *Node) Stop() int {
	n.t.Helper()
	n.Signal(syscall.SIGTERM)
	return n.WaitExit()
}

// WaitExit waits for the launcher's end and gives its exit code.
func (n *Node) WaitExit() int {
	n.t.Helper()
	if err := n.started().Wait(patience); err != nil {
		require.FailNow(n.t, err.Error(), n.Log())
	}
	return n.started().State().ExitCode()
}

// Running says whether the launcher lives.
func (n *Node) Running() bool { return n.started().Running() }

// cleanUp ends the launcher and checks that nothing is left: no process with
// its mark, no charge on a GPU, and no moment at which two engines were awake
// on one GPU that were not meant to share it.
func (n *Node) cleanUp() {
	if n.started() != nil {
		if !n.Running() { // killed by the test: a fresh one takes the engines over and ends them
			n.Start()
		}
		n.Stop()
	}
	assert.False(n.t, strings.Contains(n.Log(), "in a state that does not allow it"), "an event came too late or too soon")
	if n.t.Failed() {
		n.t.Logf("log of the launcher:\n%s", n.Log())
	}
	for _, pid := range engines(n.SimFS) {
		assert.Fail(n.t, "an engine is left over", "pid %d: %s", pid, cmdline(pid))
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	n.wrong.mu.Lock()
	defer n.wrong.mu.Unlock()
	assert.Empty(n.t, n.wrong.all, "answers that are not as the API's document says")
	overlaps, err := recorder.Overlaps(n.SimFS)
	assert.NoError(n.t, err)
	assert.Empty(n.t, overlaps, "two engines were awake on one GPU")
}

// engines lists the processes that have the folder of simulated GPUs in their
// environment, other than this one and launchers.
func engines(simfs string) []int {
	return harness.PIDs(harness.Processes(func(p harness.Process) bool {
		if !p.Has(simgpu.EnvDir, simfs) {
			return false
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
		return exe != bin.launcher
	}))
}

// halt stops processes by SIGSTOP, and returns when every thread of theirs stands. The
// kernel hands the signal to one thread, and stops the others no sooner than that thread
// runs: on a busy machine they answer requests meanwhile.
func (n *Node) halt(pids ...int) {
	n.t.Helper()
	for _, pid := range pids {
		require.NoError(n.t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	for _, pid := range pids {
		n.Eventually("every thread of the process stands", func() bool {
			threads, err := procfs.AllThreads(pid)
			require.NoError(n.t, err)
			return !slices.ContainsFunc(threads, func(thread procfs.Proc) bool {
				stat, err := thread.Stat()
				return err != nil || stat.State != "T" // a thread that ends meanwhile is not listed the next time
			})
		})
	}
}

func cmdline(pid int) string { return strings.Join(harness.ArgsOf(pid), " ") }

// Eventually waits until done says true.
func (n *Node) Eventually(what string, done func() bool) {
	n.t.Helper()
	eventually(n.t, what, done)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			require.FailNow(t, "it never came true: "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Answer is what a call got.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Into reads the body as JSON.
func (a Answer) Into(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.Body, v), "%s", a.Body)
}

// Instance reads the body as an instance.
func (a Answer) Instance(t *testing.T) launcherapi.Instance {
	t.Helper()
	var v launcherapi.Instance
	a.Into(t, &v)
	return v
}

// Problem reads the body as a problem document, and insists that it is one.
func (a Answer) Problem(t *testing.T) launcherapi.Problem {
	t.Helper()
	var v launcherapi.Problem
	assert.Equal(t, launcherapi.ProblemContentType, a.Header.Get("Content-Type"), "%s", a.Body)
	a.Into(t, &v)
	assert.Equal(t, a.Status, v.Status)
	assert.NotEmpty(t, v.Detail)
	assert.NotContains(t, v.Detail, "%!", "a detail that was formatted wrongly")
	return v
}

// Call makes one call of the control API. A body that is not a string or bytes
// is sent as JSON; headers are pairs. The answer is held against the API's
// document.
func (n *Node) Call(method, path string, body any, headers ...string) Answer {
	n.t.Helper()
	a, err := send(n.t.Context(), n.checked(), method, n.URL+path, body, append(n.authorization(), headers...)...)
	require.NoError(n.t, err)
	return a
}

func (n *Node) authorization() []string {
	if n.Token == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + n.Token}
}

// checked is the client of the control API.
func (n *Node) checked() *http.Client {
	n.readOnce.Do(func() {
		a, err := tryCall(n.t.Context(), "GET", n.URL+"/openapi.json", nil, n.authorization()...)
		require.NoError(n.t, err)
		n.Document, err = openapi.Read(a.Body)
		require.NoError(n.t, err)
		n.client = &http.Client{Transport: n.Document.Transport(http.DefaultTransport, n.wrong.add)}
	})
	return n.client
}

func call(t *testing.T, method, url string, body any, headers ...string) Answer {
	t.Helper()
	a, err := tryCall(t.Context(), method, url, body, headers...)
	require.NoError(t, err)
	return a
}

// tryCall is call for a goroutine that is not the test's own.
func tryCall(ctx context.Context, method, url string, body any, headers ...string) (Answer, error) {
	return send(ctx, http.DefaultClient, method, url, body, headers...)
}

func send(ctx context.Context, client *http.Client, method, url string, body any, headers ...string) (Answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return Answer{}, err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return Answer{}, err
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: data}, err
}

// Spec is the body of a create call for a model on GPUs, with more arguments.
func Spec(model string, gpus []string, args ...string) map[string]any {
	return map[string]any{"args": append([]string{model, "--served-model-name", model}, args...), "gpu_uuids": gpus}
}

// On is the list of the UUIDs of simulated GPUs.
func On(gpus ...int) []string {
	out := []string{}
	for _, g := range gpus {
		out = append(out, GPU(g))
	}
	return out
}

// Create makes an instance; it is starting.
func (n *Node) Create(id string, spec map[string]any) launcherapi.Instance {
	n.t.Helper()
	a := n.Call("PUT", "/v2/vllm/instances/"+id, spec)
	require.Equal(n.t, 201, a.Status, "%s", a.Body)
	return a.Instance(n.t)
}

// Awake makes an instance and waits until it is awake.
func (n *Node) Awake(id string, gpus []string, args ...string) launcherapi.Instance {
	n.t.Helper()
	n.Create(id, Spec(id, gpus, args...))
	return n.Await(id, "awake")
}

// Get shows an instance.
func (n *Node) Get(id string) launcherapi.Instance {
	n.t.Helper()
	a := n.Call("GET", "/v2/vllm/instances/"+id, nil)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	return a.Instance(n.t)
}

// Await waits until an instance is in a state; it fails at once when the
// instance has ended in another.
func (n *Node) Await(id, state string) launcherapi.Instance {
	n.t.Helper()
	var last launcherapi.Instance
	n.Eventually(id+" is "+state, func() bool {
		last = n.Get(id)
		if (last.State == "failed" || last.State == "stopped") && state != last.State {
			require.FailNow(n.t, "the instance ended", "%s is %s, not %s: %s\n%s", id, last.State, state, last.Reason, strings.Join(last.LastLogLines, "\n"))
		}
		return last.State == state
	})
	return last
}

// Sleep puts an instance to sleep and waits for it.
func (n *Node) Sleep(id string, level int) launcherapi.Instance {
	n.t.Helper()
	a := n.Call("POST", "/v2/vllm/instances/"+id+"/sleep", map[string]any{"level": level})
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	return a.Instance(n.t)
}

// Wake wakes an instance and waits for it.
func (n *Node) Wake(id string) launcherapi.Instance {
	n.t.Helper()
	a := n.Call("POST", "/v2/vllm/instances/"+id+"/wake", nil)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	return a.Instance(n.t)
}

// Delete deletes an instance and waits until it is gone.
func (n *Node) Delete(id string) launcherapi.Instance {
	n.t.Helper()
	a := n.Call("DELETE", "/v2/vllm/instances/"+id, nil)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	return a.Instance(n.t)
}

// Swap asks for a swap and waits for its end.
func (n *Node) Swap(body map[string]any, headers ...string) Answer {
	n.t.Helper()
	return n.Call("POST", "/v2/vllm/swap", body, headers...)
}

// SwapDone asks for a swap that has to succeed.
func (n *Node) SwapDone(body map[string]any) launcherapi.SwapResult {
	n.t.Helper()
	a := n.Swap(body)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var r launcherapi.SwapResult
	a.Into(n.t, &r)
	return r
}

// Ask puts a question to an instance at its public port, and gives the answer
// of the model.
func (n *Node) Ask(i launcherapi.Instance, prompt string) string {
	n.t.Helper()
	a := call(n.t, "POST", publicURL(i, "/v1/completions"), map[string]any{
		"model": i.ServedModelNames[0], "prompt": prompt, "max_tokens": 8, "temperature": 0,
	})
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var v struct {
		Model   string
		Choices []struct {
			Text         string
			FinishReason string `json:"finish_reason"`
		}
	}
	a.Into(n.t, &v)
	require.Len(n.t, v.Choices, 1)
	assert.Equal(n.t, i.ServedModelNames[0], v.Model)
	assert.NotEqual(n.t, "abort", v.Choices[0].FinishReason)
	return v.Choices[0].Text
}

func publicURL(i launcherapi.Instance, path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", i.Port, path)
}

// Watch follows the events from now on. Its channel is closed when the stream
// ends.
func (n *Node) Watch(query string, headers ...string) (<-chan launcherapi.RawEvent, func()) {
	n.t.Helper()
	return n.WatchAt("/v2/vllm/instances/watch"+query, headers...)
}

// WatchAt follows a stream of events.
func (n *Node) WatchAt(path string, headers ...string) (<-chan launcherapi.RawEvent, func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", n.URL+path, nil)
	require.NoError(n.t, err)
	headers = append(n.authorization(), headers...)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := n.checked().Do(req)
	require.NoError(n.t, err)
	require.Equal(n.t, 200, resp.StatusCode)
	events := make(chan launcherapi.RawEvent, 1000)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e launcherapi.RawEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				events <- e
			}
		}
	}()
	return events, cancel
}

// next gives the next event that is no heartbeat.
func next(t *testing.T, events <-chan launcherapi.RawEvent) launcherapi.RawEvent {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			require.True(t, ok, "the stream ended")
			if e.Type != launcherapi.EventHeartbeat {
				return e
			}
		case <-time.After(patience):
			require.FailNow(t, "no event came")
		}
	}
}
