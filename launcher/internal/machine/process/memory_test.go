package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

func TestADeathForWantOfMemoryIsTold(t *testing.T) {
	h := newHost(t, cgroup.V1)
	c := h.start(t, "a", "eat")
	c.says("ready")
	text, err := os.ReadFile("/proc/" + itoa(c.ID().PID) + "/cgroup")
	require.NoError(t, err)
	_, group, ok := strings.Cut(string(text), ":memory:")
	group, _, _ = strings.Cut(group, "\n")
	if !ok || !strings.Contains(group, h.mark) {
		stop(t, c.Process)
		t.Skip("NOT TESTED: no writable memory hierarchy of cgroup v1")
	}
	limit := filepath.Join("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
	require.NoError(t, os.WriteFile(limit, []byte("128M"), 0))
	require.NoError(t, c.Signal(syscall.SIGUSR1))
	exit := exited(t, c.Process)
	require.Equal(t, process.Exit{Code: exit.Code, Signal: syscall.SIGKILL, OOMKilled: true, At: exit.At}, exit)
	stop(t, c.Process)
}

// A container counts for all that runs in it.
func TestADeathForWantOfTheContainersMemoryIsToldOfTheOneThatDied(t *testing.T) {
	h := newHost(t, cgroup.None)
	group := filepath.Join("/sys/fs/cgroup/memory", "container-"+h.mark)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("NOT TESTED: no writable memory hierarchy of cgroup v1: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(group)) })
	require.NoError(t, os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), []byte("400M"), 0))
	launcher, said := perform(t, "cramped "+h.mark+" none "+h.exitDir+" "+group)
	require.Equal(t, "9 oom true", said.says("signal"))
	require.Equal(t, "9 oom false", said.says("signal"), "killed by someone, later")
	require.Equal(t, "9 oom false", said.says("signal"), "killed by us, after another died for want of memory")
	require.NoError(t, launcher.Wait())
}
