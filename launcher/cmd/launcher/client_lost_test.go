package main

import (
	"bytes"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFollowerGivesUpALauncherThatDoesNotComeBackAndSaysBoth(t *testing.T) {
	d := startDaemon(t, "--on-exit", "stop")
	d.do("run", "--gpu", "none", "--id", "a", "--wait", "m")
	t.Setenv(envServer, d.address)
	read, out := newLines(), &bytes.Buffer{}
	ended := make(chan int, 1)
	pipe := pipeInto(read)
	go func() {
		code := (&cli{out: pipe, err: out, reconnect: 200 * time.Millisecond}).run(t.Context(), []string{"logs", "-f", "a"})
		_ = pipe.Close()
		ended <- code
	}()
	read.await(t, func(all string) bool { return all != "" })
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGKILL))
	d.await()
	require.Equal(t, exitFailed, <-ended)
	require.Contains(t, out.String(), "launcher: the connection to the launcher broke off: ")
	require.Contains(t, out.String(), "; trying again for 200ms\n")
	require.Regexp(t, `launcher: cannot follow the log of a: the launcher could not be reached for 200ms: .*; is the launcher running there\?`, out.String())
	startIn(t, d.stateDir, []string{"serve"}) // ends the engine
}

// pipeInto gives the end to write to of a pipe that is collected.
func pipeInto(all *lines) io.WriteCloser {
	r, w := io.Pipe()
	go all.read(r)
	return w
}
