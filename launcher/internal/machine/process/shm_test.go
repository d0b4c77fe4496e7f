package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestAKilledTreeLeavesNoSharedMemoryOfEnginesBehind(t *testing.T) {
	h := newHost(t, cgroup.None)
	tag := fmt.Sprintf("hotseat-test-%d", os.Getpid())
	orphaned := []string{"psm_" + tag, "sem.mp-" + tag, "torch_" + tag, "nccl-" + tag, "vllm_offload_" + tag + ".mmap", "vllm_ec_" + tag + ".mmap", "vllm_engram_" + tag, tag + "-tp:0-[0-1]-cpushm_0"}
	for _, name := range orphaned {
		t.Cleanup(func() { _ = os.Remove(filepath.Join("/dev/shm", name)) })
	}
	kept := "other-" + tag
	t.Cleanup(func() { _ = os.Remove(filepath.Join("/dev/shm", kept)) })
	c := h.start(t, "a", "sharer "+strings.Join(append(orphaned, kept), " "))
	c.says("ready")
	for _, name := range orphaned {
		require.FileExists(t, filepath.Join("/dev/shm", name))
	}
	require.NoError(t, c.Kill(t.Context()))
	for _, name := range orphaned {
		assert.NoFileExists(t, filepath.Join("/dev/shm", name))
	}
	assert.FileExists(t, filepath.Join("/dev/shm", kept), "a file that may be somebody's stays")
}

// vLLM's processes have semaphores, and for moments shared memory, that none of
// them has mapped.
func TestTheResourceTrackerOfAKilledTreeRemovesWhatIsNotMapped(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			file := fmt.Sprintf("/dev/shm/sem.mp-hotseat-test-%d-%s", os.Getpid(), mode)
			c := h.start(t, "a", "tracked "+filepath.Base(file))
			c.says("ready")
			require.FileExists(t, file)
			require.NoError(t, c.Kill(patient(t)))
			assert.NoFileExists(t, file)
		})
	}
}

func TestTheNextLauncherRemovesTheSharedMemoryOfATreeThatDiedWithTheLast(t *testing.T) {
	h := newHost(t, cgroup.None)
	require.NoError(t, h.Close())
	h.sharedDir = filepath.Join(t.TempDir(), "shm")
	require.NoError(t, h.open())
	tag := fmt.Sprintf("hotseat-test-%d", os.Getpid())
	orphaned, replaced, kept := "/dev/shm/psm_"+tag, "/dev/shm/torch_"+tag, "/dev/shm/other-"+tag
	for _, path := range []string{orphaned, replaced, kept} {
		t.Cleanup(func() { _ = os.Remove(path) })
	}
	c := h.start(t, "a", fmt.Sprintf("sharer %s %s %s", filepath.Base(orphaned), filepath.Base(replaced), filepath.Base(kept)))
	c.says("ready")
	record := filepath.Join(h.sharedDir, "a.json")
	require.Eventually(t, func() bool {
		text, _ := os.ReadFile(record)
		return strings.Contains(string(text), orphaned) && strings.Contains(string(text), replaced)
	}, patience.Wait(), time.Millisecond)

	require.NoError(t, h.Close()) // and the machine has no memory left: all die at once
	require.NoError(t, syscall.Kill(c.ID().PID, syscall.SIGKILL))
	require.NoError(t, os.Rename(replaced, replaced+".old")) // its inode is not given again
	t.Cleanup(func() { _ = os.Remove(replaced + ".old") })
	require.NoError(t, os.WriteFile(replaced, nil, 0o600)) // another program's
	require.NoError(t, h.open())
	require.NoError(t, h.Clear(patient(t), "a"))
	assert.NoFileExists(t, orphaned)
	assert.FileExists(t, replaced)
	assert.FileExists(t, kept)
	assert.NoFileExists(t, record)
}
