package reaper

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// start starts a shell that runs a script; no one else reaps it.
func start(t *testing.T, script string) int {
	t.Helper()
	pid, _, err := syscall.StartProcess("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
	})
	require.NoError(t, err)
	return pid
}

func ended(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := procfs.Read(pid)
		require.NoError(t, err)
		return !stat.Alive()
	}, patience.Wait(), time.Millisecond)
}

func TestEndedChildrenAreReapedAndOthersLeftAlone(t *testing.T) {
	first, second, kept, running := start(t, "exit 3"), start(t, "kill -9 $$"), start(t, "exit 4"), start(t, "exec sleep 300")
	for _, pid := range []int{first, second, kept} {
		ended(t, pid)
	}
	got := map[int]syscall.WaitStatus{}
	reaped, err := Reap(
		func(stat procfs.Stat) bool { return stat.PID == kept },
		func(stat procfs.Stat, status syscall.WaitStatus) { got[stat.PID] = status },
	)
	require.NoError(t, err)
	require.Equal(t, 2, reaped)
	require.Len(t, got, 2)
	require.Equal(t, 3, got[first].ExitStatus())
	require.Equal(t, syscall.SIGKILL, got[second].Signal())

	status, ok, err := Wait(kept)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 4, status.ExitStatus())
	_, ok, err = Wait(running)
	require.NoError(t, err)
	require.False(t, ok, "it has not ended")
	require.NoError(t, syscall.Kill(running, syscall.SIGKILL))
	ended(t, running)
	_, ok, err = Wait(running)
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = Wait(running)
	require.NoError(t, err)
	require.False(t, ok, "it is no child any more")
}
