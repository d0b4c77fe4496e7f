//go:build vllm

package vllm

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// ports are the TCP ports that processes of an instance listen on.
func ports(t *testing.T, i launcherapi.Instance) (all []uint64) {
	t.Helper()
	listeners := map[string]uint64{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 9 && fields[3] == "0A" {
				port, err := strconv.ParseUint(fields[1][strings.LastIndex(fields[1], ":")+1:], 16, 16)
				require.NoError(t, err)
				listeners["socket:["+fields[9]+"]"] = port
			}
		}
	}
	for _, p := range tree(i) {
		open, err := harness.Descriptors(p.PID)
		require.NoError(t, err)
		for _, target := range open {
			if port, ok := listeners[target]; ok {
				all = append(all, port)
			}
		}
	}
	return all
}

// unreachable checks that an engine answers at its socket alone.
func (n *node) unreachable(t *testing.T, i launcherapi.Instance) {
	t.Helper()
	address := n.engineAddress(i)
	require.Equal(t, "unix", harness.Network(address))
	info, err := os.Stat(filepath.Dir(address))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	assert.Empty(t, speakHTTP(t, i))
}

// speakHTTP are those ports of an instance's processes that answer a request.
func speakHTTP(t *testing.T, i launcherapi.Instance) (all []string) {
	t.Helper()
	var asked []net.Conn
	for _, port := range ports(t, i) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer conn.Close()
		if _, err = io.WriteString(conn, "GET /is_sleeping HTTP/1.1\r\nHost: localhost\r\n\r\n"); err == nil {
			asked = append(asked, conn)
		}
	}
	ask(t, i) // what answers there as well has done so by now, or does within a second
	until := time.Now().Add(time.Second)
	for _, conn := range asked {
		require.NoError(t, conn.SetReadDeadline(until))
		said, _ := io.ReadAll(io.LimitReader(conn, 64)) // most ports are vLLM's own: they close, or say nothing
		if strings.HasPrefix(string(said), "HTTP/") {
			all = append(all, conn.RemoteAddr().String())
		}
	}
	return all
}

// A launcher is upgraded over engines of a release that put them on ports. The engines are
// forked. By exec, test/e2e TestLauncherAdoptsEnginesWhereverTheyListen shows the same with the
// stand-in, and TestARelease that real vLLM outlives its launcher.
func TestEnginesOnPortsAndSocketsOutliveTheirLauncher(t *testing.T) {
	n := newNode(t, by(launcherapi.StartFork), func(n *node) { n.flags = []string{"--engine-socket", "never"} })
	n.preloaded("")
	n.create("port", gpu(0), arguments(modelA, "tiny-a"))
	port := n.await("port", "awake")
	assert.Equal(t, launcherapi.StartFork, port.StartedBy)
	require.Equal(t, "tcp", harness.Network(n.engineAddress(port)))
	assert.Equal(t, []string{n.engineAddress(port)}, speakHTTP(t, port))
	words := ask(t, port)

	n.kill()
	n.flags = nil
	n.start()
	assert.Equal(t, port.PID, n.get("port").PID)
	assert.Equal(t, words, ask(t, n.get("port")))
	n.preloaded("")
	socket := *n.swapTo(launcherapi.SwapIn{ID: "socket", Args: arguments(modelB, "tiny-b")}, 1).In
	assert.Equal(t, launcherapi.StartFork, socket.StartedBy)
	n.unreachable(t, socket)
	others := ask(t, socket)
	if list, err := n.Preloaders(t.Context()); assert.NoError(t, err) {
		assert.Len(t, list.Preloaders, 1, "the socket needs no preloader of its own")
	}
	for _, level := range []int{1, 2} {
		n.swapTo(existing("port"), level)
		assert.Equal(t, words, ask(t, n.get("port")))
		n.swapTo(existing("socket"), level)
		assert.Equal(t, others, ask(t, n.get("socket")))
	}

	n.kill()
	n.start()
	assert.Equal(t, "awake", n.get("socket").State)
	assert.Equal(t, "sleeping", n.get("port").State)
	assert.Equal(t, socket.PID, n.get("socket").PID)
	assert.Equal(t, others, ask(t, n.get("socket")))
	n.swapTo(existing("port"), 1)
	assert.Equal(t, words, ask(t, n.get("port")))
	n.remove("port")
	n.remove("socket")
}
