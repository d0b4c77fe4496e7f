package simgpu_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
)

// BenchmarkALookAtAHundredHolders is what a launcher pays each time that it
// reads the memory of a simulated GPU on which a hundred engines sleep.
func BenchmarkALookAtAHundredHolders(b *testing.B) {
	dir, err := simgpu.Create(b.TempDir(), []simgpu.GPU{{UUID: "GPU-a", Product: "simulated", MemoryTotalBytes: 80 * gib}})
	require.NoError(b, err)
	for range 100 {
		child := exec.CommandContext(b.Context(), "sleep", "600")
		require.NoError(b, child.Start())
		b.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		require.NoError(b, dir.Set("GPU-a", child.Process.Pid, 1<<20))
	}
	look := func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			holders, err := dir.Holders("GPU-a")
			require.NoError(b, err)
			require.Len(b, holders, 100)
		}
	}
	b.Run("that reads the folder", look)
	require.NoError(b, dir.Follow())
	b.Run("at a folder that is followed", look)
	require.NoError(b, dir.Close())
}

func TestALookSeesWhatWasWrittenInPlaceSinceTheLastOne(t *testing.T) {
	path := t.TempDir()
	dir, err := simgpu.Create(path, []simgpu.GPU{{UUID: "GPU-a", Product: "simulated", MemoryTotalBytes: 80 * gib}})
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.Close()) }()
	self := os.Getpid()
	file := filepath.Join(path, "GPU-a", strconv.Itoa(self))
	for n := 10; n < 100; n++ { // two digits: the file keeps its size
		require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(n)), 0o600))
		holders, err := dir.Holders("GPU-a")
		require.NoError(t, err)
		require.Equal(t, []simgpu.Holder{{PID: self, Bytes: uint64(n)}}, holders)
	}
}
