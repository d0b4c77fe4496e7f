//go:build vllm

package vllm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// What the tests run.
var (
	launcherPath string // built by TestMain
	vllmPath     string
	modelA       string // folder of tiny-a
	modelB       string
	compiled     string // folder where PyTorch keeps what it compiles, from run to run
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	real, err := harness.FindVLLM()
	if err != nil {
		return 1, err
	}
	vllmPath, modelA, modelB, compiled = real.Program, real.ModelA, real.ModelB, real.Compiled
	dir, err := harness.Folder("hotseat-vllm-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	launcherPath = filepath.Join(dir, "launcher")
	if err := harness.Build(context.Background(), "../..", dir, nil, "launcher/cmd/launcher", "launcher/cmd/modelfetch"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// node is a machine with some simulated GPUs and a launcher, which may be
// killed and started again. Its methods speak to the launcher by its client.
type node struct {
	*client.Client
	t     *testing.T
	addr  string
	root  string // folder of all that the node has
	state string // folder
	temp  string // folder, for its processes alone
	mark  string // KEY=VALUE in the environment of the node's processes
	log   string // file
	// The launcher that was started last.
	program *harness.Program
	// What the launcher is given: the engine's command, how it starts it, more
	// flags, more variables.
	vllm        string
	startMethod string
	flags       []string
	env         []string
	ownCache    bool // engines keep what they compile where the launcher says, and not from run to run
	// sessions are those of the instances seen. Each has its own, and its
	// processes cannot leave it but by a call that vLLM does not make; those that
	// vLLM gives a title to lose their environment.
	sessions map[int]bool
	shared   map[string]string // files in /dev/shm that instances were seen to have, with whose they are
}

func newNode(t *testing.T, change ...func(*node)) *node {
	t.Helper()
	// Short, for the address of a Unix socket has 107 bytes at most (unix(7)), and
	// vLLM puts sockets with long names in its temporary folder.
	root, err := os.MkdirTemp("", "hs")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(root)) })
	address, err := harness.FreeAddress()
	require.NoError(t, err)
	n := &node{
		t: t, addr: address, root: root, state: filepath.Join(root, "state"), temp: filepath.Join(root, "tmp"), log: filepath.Join(root, "launcher.log"),
		mark: "TEST_NODE=" + root, sessions: map[int]bool{}, shared: map[string]string{}, vllm: vllmPath, startMethod: launcherapi.StartExec,
	}
	require.NoError(t, os.Mkdir(n.temp, 0o700))
	for _, c := range change {
		c(n)
	}
	n.Client, err = client.New(client.Options{Server: n.addr})
	require.NoError(t, err)
	t.Cleanup(n.cleanUp)
	n.start()
	return n
}

// start starts the launcher and waits until it serves.
func (n *node) start() {
	n.t.Helper()
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n.t, err)
	defer out.Close()
	cmd := exec.Command(launcherPath, append([]string{
		"serve", "--listen", n.addr, "--gpus", "simulated:4", "--state-dir", n.state, "--vllm", n.vllm, "--start-method", n.startMethod,
	}, n.flags...)...)
	cmd.Env = append(append(os.Environ(), n.mark, "TMPDIR="+n.temp), n.env...)
	if !n.ownCache {
		cmd.Env = append(cmd.Env, "TORCHINDUCTOR_CACHE_DIR="+compiled, "VLLM_CACHE_ROOT="+filepath.Join(compiled, "vllm"))
	}
	n.program, err = harness.Start(cmd, out)
	require.NoError(n.t, err)
	ctx, stop := context.WithTimeout(n.t.Context(), patience.Wait())
	defer stop()
	require.NoError(n.t, n.program.AwaitServing(ctx, n.addr))
}

func (n *node) running() bool { return n.program.Running() }

// kill ends the launcher by kill −9.
func (n *node) kill() { n.program.Kill() }

// cleanUp ends the launcher, which ends its engines, and checks that no
// process, no temporary file and no shared memory is left.
func (n *node) cleanUp() {
	defer n.Close()
	if n.running() {
		assert.NoError(n.t, n.program.Stop(patience.LongWait()))
	}
	for _, p := range harness.Processes(n.owns) {
		assert.Fail(n.t, "a process is left over", "%d: %s", p.PID, p.CommandLine())
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	assert.Empty(n.t, n.temporary(), "files are left over")
	assert.Empty(n.t, n.leftShared(), "shared memory is left over")
	if n.t.Failed() {
		log, _ := os.ReadFile(n.log)
		n.t.Logf("the launcher's log:\n%s", log)
	}
}

// show runs a subtest, and says whether it passed.
func (n *node) show(name string, f func(t *testing.T)) bool {
	outer := n.t
	defer func() { n.t = outer }()
	return outer.Run(name, func(t *testing.T) {
		n.t = t
		f(t)
	})
}

func (n *node) eventually(what string, done func() bool) {
	n.t.Helper()
	deadline := time.Now().Add(patience.LongWait())
	for !done() {
		if time.Now().After(deadline) {
			require.FailNow(n.t, "it never came true: "+what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// gpu is the UUID of a simulated GPU.
func gpu(n int) []string { return []string{harness.GPU(n)} }

// arguments are vLLM's for a model that is served under a name.
func arguments(model, name string, more ...string) []string {
	return append([]string{
		model, "--served-model-name", name,
		"--dtype", "float32", "--enforce-eager", "--max-model-len", "256", "--max-num-seqs", "4",
	}, more...)
}

// create makes an instance; it is starting.
func (n *node) create(id string, gpus, args []string) launcherapi.Instance {
	n.t.Helper()
	i, err := n.Create(n.t.Context(), id, launcherapi.InstanceSpec{Args: args, GPUUUIDs: gpus})
	require.NoError(n.t, err)
	require.Equal(n.t, "starting", i.State)
	return i
}

func (n *node) get(id string) launcherapi.Instance {
	n.t.Helper()
	i, err := n.Get(n.t.Context(), id)
	require.NoError(n.t, err)
	if i.PID > 0 {
		n.sessions[i.PID] = true
	}
	return i
}

// await waits until an instance is in a state; it fails at once when the
// instance ended otherwise.
func (n *node) await(id, state string) launcherapi.Instance {
	n.t.Helper()
	var last launcherapi.Instance
	n.eventually(id+" is "+state, func() bool {
		last = n.get(id)
		if last.Status == launcherapi.StatusStopped && last.State != state {
			require.FailNow(n.t, id+" ended", "%s: %s\n%s", last.State, last.Reason, strings.Join(last.LastLogLines, "\n"))
		}
		return last.State == state
	})
	n.noteShared(last)
	return last
}

// swapTo swaps an instance in.
func (n *node) swapTo(in launcherapi.SwapIn, level int) launcherapi.SwapResult {
	n.t.Helper()
	r, err := n.Swap(n.t.Context(), launcherapi.SwapRequest{GPUUUIDs: gpu(0), In: &in, Out: &launcherapi.SwapOut{Level: level}}, nil)
	require.NoError(n.t, err)
	require.Equal(n.t, launcherapi.OutcomeDone, r.Outcome)
	require.Equal(n.t, "awake", r.In.State)
	require.Len(n.t, r.Out, 1)
	require.Equal(n.t, "sleeping", r.Out[0].State)
	require.Equal(n.t, level, r.Out[0].SleepLevel)
	return r
}

// remove deletes an instance, and waits for that.
func (n *node) remove(id string) {
	n.t.Helper()
	_, err := n.Delete(n.t.Context(), id)
	require.NoError(n.t, err)
	_, err = n.Get(n.t.Context(), id)
	require.True(n.t, client.IsNotFound(err), "%v", err)
}

// stops deletes an instance, which ends as it should and leaves nothing.
func (n *node) stops(t *testing.T, id string) {
	t.Helper()
	i, err := n.Delete(t.Context(), id)
	require.NoError(t, err)
	require.NotNil(t, i.ExitCode, i.Reason)
	assert.Zero(t, *i.ExitCode)
	assert.Empty(t, tree(i))
}
