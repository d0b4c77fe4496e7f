package procfs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestResidentMemoryGrowsByWhatAProcessTakes(t *testing.T) {
	const size = 64 << 20
	before := ReadResident(os.Getpid())
	require.NotZero(t, before.Anon)
	require.NotZero(t, before.File)
	for name, flags := range map[string]int{"anonymous": unix.MAP_PRIVATE, "shared": unix.MAP_SHARED} {
		block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANONYMOUS)
		require.NoError(t, err)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		after := ReadResident(os.Getpid())
		grown := after.Anon - before.Anon
		if name == "shared" {
			grown = after.Shmem - before.Shmem
		}
		require.InDelta(t, size, grown, size/2, name)
		require.NoError(t, unix.Munmap(block))
	}
	require.Zero(t, ReadResident(1<<30))
}

func BenchmarkReadResident(b *testing.B) {
	for b.Loop() {
		ReadResident(os.Getpid())
	}
}
