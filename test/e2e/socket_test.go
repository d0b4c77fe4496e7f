package e2e

import (
	"bufio"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Engines listen on Unix sockets, which no other user reaches.

// places are state folders: one in which sockets have room, and one whose path is too long.
var places = map[string]string{"a short path": "s", "a long path": strings.Repeat("x", 60)}

// nodeIn makes a node whose state folder everybody may look into, below a folder in the
// temporary folder. Its launcher does not run yet.
func nodeIn(t *testing.T, place string, flags ...string) *Node {
	t.Helper()
	n := NewStoppedNode(t, flags...)
	state := filepath.Join(shortDir(t), place)
	require.NoError(t, os.Mkdir(state, 0o755))
	n.args[slices.Index(n.args, n.State)] = state
	n.State = state
	return n
}

// asNobody does something on a thread of another user.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: ONLY ROOT CAN BECOME ANOTHER USER")
	}
	const nobody = 65534
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		for _, call := range [][4]uintptr{
			{syscall.SYS_SETGROUPS}, {syscall.SYS_SETRESGID, nobody, nobody, nobody}, {syscall.SYS_SETRESUID, nobody, nobody, nobody},
		} {
			if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				assert.Fail(t, "cannot become another user", errno)
				return
			}
		}
		do()
	}()
	<-done
}

// request makes a request at an address. It dials on the caller's thread.
func request(address, method, path string) (status int, err error) {
	conn, err := net.DialTimeout(harness.Network(address), address, patience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, path); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// portsOf counts the TCP ports that processes listen on.
func portsOf(t *testing.T, pids []int) (count int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		count += listening(t, pid)
	}
	return count
}

func TestOtherUsersDoNotReachAnEngine(t *testing.T) {
	t.Parallel()
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeIn(t, place)
			n.Start()
			i := n.Awake("a", On(0))
			address := engineAddress(t, i)
			require.Equal(t, "unix", harness.Network(address), string(n.logFile(i)))
			assert.Equal(t, place == "s", strings.HasPrefix(address, n.State+"/run/"), address)
			for _, dir := range []string{filepath.Dir(address), filepath.Dir(filepath.Dir(address))} {
				info, err := os.Lstat(dir)
				require.NoError(t, err)
				assert.Equal(t, fs.ModeDir|0o700, info.Mode(), dir)
			}
			assert.Zero(t, portsOf(t, engines(n.SimFS)), "no process of the engine listens on a port")
			asNobody(t, func() {
				_, err := request(address, "POST", "/sleep?level=2")
				assert.ErrorIs(t, err, syscall.EACCES)
				public := fmt.Sprintf("127.0.0.1:%d", i.Port)
				for _, path := range []string{"/sleep?level=2", "/wake_up", "/collective_rpc", "/reset_prefix_cache", "/v1/sleep"} {
					status, err := request(public, "POST", path)
					assert.NoError(t, err)
					assert.Equal(t, 404, status, path)
				}
			})
			n.Ask(i, "hello")
			assert.NotContains(t, string(n.logFile(i)), "every local user")
			assert.Contains(t, string(n.logFile(i)), `INFO:     127.0.0.1:0 - "POST /v1/completions`, "the engine knows its clients")
		})
	}
}

func TestEnginesThatOtherUsersReachAreTold(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--engine-socket", "never")
	i := n.Awake("a", On(0))
	address := engineAddress(t, i)
	require.Equal(t, "tcp", harness.Network(address))
	assert.Equal(t, 1, portsOf(t, engines(n.SimFS)))
	asNobody(t, func() {
		for _, path := range []string{"/sleep?level=1", "/wake_up"} {
			status, err := request(address, "POST", path)
			assert.NoError(t, err)
			assert.Equal(t, 200, status, path)
		}
	})
	assert.Contains(t, string(n.logFile(i)), "hotseat: the engine listens on a port of loopback, where every local user reaches its developer endpoints (/sleep, /collective_rpc): the launcher's engine_socket is never")
	assert.Contains(t, n.Log(), "engines listen on ports of loopback")
	doctor := func(flags ...string) string {
		cmd := exec.CommandContext(t.Context(), bin.launcher, append([]string{"doctor", "--state-dir", n.State, "--vllm", bin.enginesim, "--gpus", "simulated:1"}, flags...)...)
		out, _ := cmd.CombinedOutput() // other checks may fail here
		return string(out)
	}
	assert.Regexp(t, `(?m)^warn +engine socket +engines listen on ports of loopback, where every local user can put them to sleep`, doctor("--engine-socket", "never"))
	assert.Regexp(t, `(?m)^ok +engine socket +engines listen on Unix sockets that no other user reaches`, doctor())
}

// set changes the value of a flag of a launcher that is to be started.
func (n *Node) set(flag, value string) { n.args[slices.Index(n.args, flag)+1] = value }

func TestLauncherAdoptsEnginesWhereverTheyListen(t *testing.T) {
	t.Parallel()
	for _, method := range []string{launcherapi.StartExec, launcherapi.StartFork} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			n := newForkNode(t, "--engine-socket", "never") // as a release before sockets
			n.Start()
			n.preloader()
			made := map[string]launcherapi.Instance{"port": n.run("port", method), "port-asleep": n.run("port-asleep", method)}
			n.Sleep("port-asleep", 1)
			require.Equal(t, "tcp", harness.Network(engineAddress(t, made["port"])))
			for _, mode := range []string{"auto", "never", "auto"} {
				n.Kill9()
				n.set("--engine-socket", mode)
				n.Start()
				now := n.settled()
				require.Len(t, now, len(made))
				for id, before := range made {
					assert.Equal(t, before.PID, now[id].PID, id)
					assert.Equal(t, before.Port, now[id].Port, id)
				}
				assert.Equal(t, "sleeping", now["port-asleep"].State)
				assert.Equal(t, 200, call(t, "GET", publicURL(now["port"], "/health"), nil).Status)
				n.Sleep("port", 1)
				n.Wake("port")
				if len(made) > 2 {
					assert.Equal(t, "sleeping", now["socket-asleep"].State)
					assert.Equal(t, 200, call(t, "GET", publicURL(now["socket"], "/health"), nil).Status)
					n.Sleep("socket", 2)
					n.Wake("socket")
					continue
				}
				n.preloader()
				made["socket"], made["socket-asleep"] = n.run("socket", method), n.run("socket-asleep", method)
				n.Sleep("socket-asleep", 1)
				require.Equal(t, "unix", harness.Network(engineAddress(t, made["socket"])))
				assert.Equal(t, method, made["socket"].StartedBy)
			}
			n.Wake("port-asleep")
			n.Wake("socket-asleep")
			for id := range made {
				n.Delete(id)
			}
		})
	}
}

func TestSocketFoldersGoWithTheirEngines(t *testing.T) {
	t.Parallel()
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeIn(t, place)
			n.Start()
			folder := func(id string) string { return filepath.Dir(engineAddress(t, n.Get(id))) }
			gone := func(dir string) {
				t.Helper()
				n.Eventually("the folder is gone", func() bool {
					_, err := os.Lstat(dir)
					return os.IsNotExist(err)
				})
			}
			n.Awake("deleted", On(0), "--gpu-memory-utilization", "0.2")
			dir := folder("deleted")
			n.Delete("deleted")
			gone(dir)
			killed := n.Awake("killed", On(0), "--gpu-memory-utilization", "0.2")
			dir = folder("killed")
			require.NoError(t, syscall.Kill(killed.PID, syscall.SIGKILL))
			n.Await("killed", "failed")
			gone(dir)
			// All processes die at once, as in a container that is restarted.
			lost := n.Awake("lost", On(0), "--gpu-memory-utilization", "0.2")
			dir = folder("lost")
			stranger := filepath.Join(filepath.Dir(dir), "stranger")
			require.NoError(t, os.Mkdir(stranger, 0o700))
			n.Kill9()
			for _, pid := range engines(n.SimFS) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			n.Start()
			n.Await("lost", "failed")
			assert.NotEqual(t, 0, lost.PID)
			gone(dir)
			assert.DirExists(t, stranger, "nobody told the launcher to remove that")
			require.NoError(t, os.Remove(stranger))
			n.Delete("lost")
			again := n.Awake("again", On(0))
			dir = folder("again")
			n.Delete(again.InstanceID)
			gone(dir)
			if place != "s" {
				base := filepath.Dir(dir)
				assert.DirExists(t, base, "another user could take its name, which all have seen")
				require.NoError(t, os.Remove(base), "it is empty")
			}
		})
	}
}

func TestSocketIsFoundInAMovedStateFolder(t *testing.T) {
	t.Parallel()
	n := nodeIn(t, "s")
	n.Start()
	i := n.Awake("a", On(0))
	require.True(t, strings.HasPrefix(engineAddress(t, i), n.State+"/run/"))
	n.Kill9()
	moved := n.State + strings.Repeat("-moved", 20) // too long for a socket
	require.NoError(t, os.Rename(n.State, moved))
	n.args[slices.Index(n.args, n.State)] = moved
	n.State = moved
	n.Start()
	now := n.Get("a")
	assert.Equal(t, i.PID, now.PID)
	n.Ask(now, "hello")
	n.Sleep("a", 1)
	n.Wake("a")
	b := n.Awake("b", On(1))
	n.Ask(b, "hello")
	n.Delete("a")
	left, err := os.ReadDir(filepath.Join(moved, "run"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
