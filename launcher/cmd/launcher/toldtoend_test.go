package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestACrashOfServeThatWasToldToEndIsNoWrongConfiguration(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "launcher"), "init", "--misconfigured-exit-code", "78", "--", "serve", "--on-exit", "leave",
		"--listen", "127.0.0.1:0", "--gpus", "simulated:1", "--state-dir", t.TempDir(), "--vllm", filepath.Join(bin, "enginesim"))
	cmd.Env = append(os.Environ(), "GOTRACEBACK=none") // Go's dump of goroutines that run on can itself end by SIGSEGV
	p := spawn(t, cmd)
	p.awaitServing(0)
	serve := onlyChild(t, p.cmd.Process.Pid)
	require.NoError(t, syscall.Kill(serve, syscall.SIGSTOP))
	status := func(field string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", serve))
		require.NoError(t, err)
		_, value, _ := strings.Cut(string(text), field)
		return value
	}
	// Of two signals that wait a process takes the one with the lower number: it
	// must have stopped before it is told to end.
	require.Eventually(t, func() bool { return strings.Fields(status("State:"))[0] == "T" }, patience.Wait(), time.Millisecond, "it does not stop")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		pending := status("ShdPnd:")
		mask, err := strconv.ParseUint(strings.Fields(pending)[0], 16, 64)
		require.NoError(t, err)
		return mask&(1<<(syscall.SIGTERM-1)) != 0
	}, patience.Wait(), time.Millisecond, "the signal is not forwarded")
	require.NoError(t, syscall.Kill(serve, syscall.SIGQUIT)) // answered with exit code 2, as a panic is
	require.NoError(t, syscall.Kill(serve, syscall.SIGCONT))
	require.Equal(t, 2, p.await(), "78 keeps systemd from starting it again")
}

// onlyChild is the only child of a process, whichever of its threads has made it.
func onlyChild(t *testing.T, pid int) int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var children []string
	for _, file := range threads {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		children = append(children, strings.Fields(string(content))...)
	}
	require.Len(t, children, 1)
	child, err := strconv.Atoi(children[0])
	require.NoError(t, err)
	return child
}
