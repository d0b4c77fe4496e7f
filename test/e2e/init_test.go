package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// Of the section "Crashes and full disks" of spec/rows.md: serve under launcher init.

// underInit makes a node whose launcher is run by launcher init, which is not
// started yet.
func underInit(t *testing.T, flags ...string) *Node {
	t.Helper()
	n := NewStoppedNode(t, flags...)
	n.args = append([]string{"init", "--"}, n.args...)
	return n
}

// startDespite starts the launcher where something is in its way, which release
// takes away once serve has told of it twice: init must have tried again.
func (n *Node) startDespite(told string, release func()) {
	n.t.Helper()
	released := make(chan struct{})
	go func() {
		defer close(released)
		defer release()
		for began := time.Now(); strings.Count(n.Log(), told) < 2 && !n.started().HasEnded(); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > patience {
				n.t.Errorf("the launcher does not say twice: %s:\n%s", told, n.Log())
				return
			}
		}
	}()
	n.Start()
	<-released
}

// serve gives the process of serve that init runs; 0 when there is none.
func (n *Node) serve() int {
	n.t.Helper()
	init := n.PID()
	for _, p := range harness.Processes(func(p harness.Process) bool { return p.Parent == init }) {
		if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID)); exe == bin.launcher {
			return p.PID
		}
	}
	return 0
}

// serveAfter waits for the serve that comes after another one.
func (n *Node) serveAfter(former int) int {
	n.t.Helper()
	var now int
	n.Eventually("init runs serve again", func() bool {
		require.True(n.t, n.Running(), "init has given up:\n%s", n.Log())
		now = n.serve()
		return now != 0 && now != former
	})
	return now
}

func TestInitRunsServeAgainAfterACrashWhoseExitCodeIs2AndTheModelsLive(t *testing.T) {
	t.Parallel()
	n := underInit(t)
	n.Start()
	a := n.Awake("a", On(0))
	former := n.serve()
	require.NotZero(t, former)
	require.NoError(t, syscall.Kill(former, syscall.SIGQUIT), "the Go runtime answers it with a dump and exit code 2, as it does a panic")
	n.serveAfter(former)
	n.Eventually("the launcher serves", func() bool {
		answer, err := tryCall(t.Context(), "GET", n.URL+"/v2/vllm/instances/a", nil)
		return err == nil && answer.Status == 200
	})
	now := n.Get("a")
	assert.Equal(t, "awake", now.State)
	assert.Equal(t, a.PID, now.PID)
	assert.NotEmpty(t, n.Ask(now, "hello"))
}

func TestInitTriesAgainWhileTheAddressIsTaken(t *testing.T) {
	t.Parallel()
	n := underInit(t)
	stranger, err := net.Listen("tcp", strings.TrimPrefix(n.URL, "http://"))
	require.NoError(t, err)
	n.startDespite("address already in use", func() { assert.NoError(t, stranger.Close()) })
	assert.Contains(t, n.Log(), "--listen", "it says what helps")
}

func TestInitTriesAgainWhileAnotherProcessHasTheStateFolder(t *testing.T) {
	t.Parallel()
	n := underInit(t)
	require.NoError(t, os.MkdirAll(n.State, 0o700))
	lock, err := os.Create(filepath.Join(n.State, "lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	n.startDespite("cannot use the state folder", func() { assert.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)) })
}

func TestUnsafeStateFolderIsRefusedAndInitTriesAgain(t *testing.T) {
	t.Parallel()
	n := underInit(t)
	n.Start()
	a := n.Awake("a", On(0))
	require.NoError(t, os.Chmod(n.State, 0o777))
	require.NoError(t, syscall.Kill(n.serve(), syscall.SIGKILL))
	n.Eventually("serve has refused the folder twice", func() bool {
		require.True(t, n.Running(), "init has given up:\n%s", n.Log())
		return strings.Count(n.Log(), "others may write to it") > 1
	})
	started, err := exec.CommandContext(t.Context(), bin.launcher, n.args...).CombinedOutput()
	var ended *exec.ExitError
	require.ErrorAs(t, err, &ended)
	assert.Equal(t, 2, ended.ExitCode())
	assert.Contains(t, string(started), "--state-dir", "init that is started says what helps")
	require.NoError(t, os.Chmod(n.State, 0o700))
	n.Eventually("the launcher serves", func() bool {
		answer, err := tryCall(t.Context(), "GET", n.URL+"/v2/vllm/instances/a", nil)
		return err == nil && answer.Status == 200
	})
	assert.Equal(t, a.PID, n.Get("a").PID)
	n.Ask(n.Get("a"), "hello")
}

func TestInitGivesUpWhereServeSaysThatTheConfigurationIsWrong(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (code int, said string) {
		cmd := exec.Command(bin.launcher, append(args, "--listen", "127.0.0.1:0", "--state-dir", t.TempDir(), "--gpus", "simulated:1", "--vllm", "/no/such/vllm")...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		return cmd.ProcessState.ExitCode(), string(out)
	}
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"with exit code 2":                    {[]string{"init", "--", "serve"}, 2},
		"with the exit code that it is given": {[]string{"init", "--misconfigured-exit-code", "78", "--", "serve"}, 78},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := run(c.args...)
			assert.Equal(t, c.code, code, said)
			assert.Equal(t, 1, strings.Count(said, "launcher: cannot find the program of --vllm"), said)
		})
	}
}

// Serve is killed with kill -9 and cannot start again, since the file of its token is missing.
// Init has to deal with the engines, whether serve is starting or waits for its next try.
func TestInitThatIsToldToEndWhileServeIsDownDoesWhatOnExitSays(t *testing.T) {
	t.Parallel()
	for onExit, lives := range map[string]bool{"stop": false, "leave": true} {
		t.Run(onExit, func(t *testing.T) {
			n, file := newStoppedTokenNode(t, "s3cret-token")
			n.args = append([]string{"init", "--"}, append(n.args, "--on-exit", onExit)...)
			n.Start()
			a := n.Awake("a", On(0))
			require.NoError(t, os.Rename(file, file+".away"))
			require.NoError(t, syscall.Kill(n.serve(), syscall.SIGKILL))
			n.Eventually("serve has failed to start twice", func() bool { return strings.Count(n.Log(), "no such file") > 1 })
			code := n.Stop()
			assert.Equal(t, lives, slices.Contains(engines(n.SimFS), a.PID), n.Log())
			if !lives {
				assert.Zero(t, code, n.Log())
				assert.Empty(t, engines(n.SimFS), n.Log())
			}
			require.NoError(t, os.Rename(file+".away", file))
			n.args[len(n.args)-1] = "stop"
			n.Start()
			assert.Equal(t, lives, n.Call("GET", instances+"/a", nil).Status == 200)
		})
	}
}
