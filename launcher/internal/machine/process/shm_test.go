package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
)

func TestAKilledTreeLeavesNoSharedMemoryOfEnginesBehind(t *testing.T) {
	h := newHost(t, cgroup.None)
	tag := fmt.Sprintf("hotseat-test-%d", os.Getpid())
	orphaned := []string{"psm_" + tag, "sem.mp-" + tag, "torch_" + tag, "nccl-" + tag, "vllm_offload_" + tag + ".mmap"}
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
