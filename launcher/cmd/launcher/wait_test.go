package main

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaitEndsWhenTheInstanceIsInTheState(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "0", "--id", "a", "m", "--sim-load-time", "50ms")
	require.Equal(t, "a is awake\n", d.do("wait", "a").out)
	d.do("sleep", "a")
	require.Equal(t, "a is sleeping\n", d.do("wait", "a", "--for", "asleep").out)
	require.Equal(t, "a is sleeping\n", d.do("wait", "a", "--for", "sleeping").out, "as ps calls it")
	t.Run("with exit code 1 after the timeout", func(t *testing.T) {
		r := d.call("wait", "a", "--timeout", "50ms")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "launcher: a is not awake after 50ms; it is sleeping\n")
		require.Contains(t, r.err, "a sleeps; launcher swap a wakes it\n")
	})
	t.Run("with exit code 1 when it ends before", func(t *testing.T) {
		d.do("run", "--gpu", "none", "--id", "oom", "m", "--sim-oom")
		r := d.call("wait", "oom")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "  cause: out_of_device_memory\n")
		require.Equal(t, "oom is failed\n", d.do("wait", "oom", "--for", "stopped").out)
	})
	t.Run("and counts one that does not exist as stopped", func(t *testing.T) {
		require.Equal(t, "nobody is gone\n", d.do("wait", "nobody", "--for", "stopped").out)
	})
	t.Run("when another command stops it", func(t *testing.T) {
		waiting := spawnClient(t, d, "wait", "a", "--for", "stopped")
		waiting.log.awaitText(t, "a is sleeping")
		d.do("stop", "a")
		require.Equal(t, exitOK, waiting.await())
		require.Regexp(t, `a is (gone|stopped)\n$`, waiting.log.text())
	})
	t.Run("and says -o json what the API says", func(t *testing.T) {
		requireSameDocument(t, d, "/v2/vllm/instances/oom", d.do("wait", "oom", "--for", "stopped", "-o", "json").out)
	})
}

func TestWaitIsInterruptedWithoutAnythingGoingOn(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "none", "--id", "a", "m", "--sim-hang-at-load", "always")
	waiting := spawnClient(t, d, "wait", "a")
	waiting.log.awaitText(t, "a is starting")
	require.NoError(t, waiting.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, 130, waiting.await())
	require.Contains(t, waiting.log.text(), "launcher: interrupted\n")
}

func TestATableWithoutRowsHasNoRemarks(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&table{heading: []string{"ID", "REASON"}}).write(&out))
	require.Equal(t, "ID\n", out.String())
}
