//go:build cgo

package requester

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
)

// A process keeps the first NVML that it loads, so this test is one.
func TestNVMLIsAskedAnewEachTime(t *testing.T) {
	library, err := fakenvml.Build(t.TempDir())
	require.NoError(t, err)
	dir, err := simgpu.Create(filepath.Join(t.TempDir(), "gpus"), []simgpu.GPU{
		{UUID: "GPU-a", Index: 0, Product: "Whole", MemoryTotalBytes: 80 << 30},
		{UUID: "MIG-b", Index: 3, Product: "Slice", MemoryTotalBytes: 10 << 30},
		{UUID: "MIG-c", Index: 3, Product: "Slice", MemoryTotalBytes: 20 << 30},
	})
	require.NoError(t, err)
	t.Setenv(simgpu.EnvDir, dir.Path()) // for the library
	s := start(t, func(o *Options) {
		o.AcceleratorsFrom = "nvml"
		o.Getenv = environment(envNVMLLibrary, library)
	})
	for _, held := range []uint64{0, 3 << 30} {
		require.NoError(t, dir.Set("MIG-c", os.Getpid(), held))
		got := s.get(requesterapi.PathAccelerators)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, []string{"GPU-a", "MIG-b", "MIG-c"}, read[[]string](t, got))
		got = s.get(requesterapi.PathAcceleratorMemoryUsage)
		require.Equal(t, 200, got.status, got.body)
		require.Equal(t, requesterapi.MemoryUsage{"GPU-a": 0, "MIG-b": 0, "MIG-c": int64(held >> 20)}, read[requesterapi.MemoryUsage](t, got))
	}

	s = start(t, func(o *Options) {
		o.Getenv = environment(envNVMLLibrary, library, envVisible, "MIG-c")
	})
	got := s.get(requesterapi.PathAcceleratorMemoryUsage)
	require.Equal(t, requesterapi.MemoryUsage{"MIG-c": 3 << 10}, read[requesterapi.MemoryUsage](t, got), "only what the Pod was given")

	s = start(t, func(o *Options) {
		o.AcceleratorsFrom = "auto"
		o.Getenv = environment(envNVMLLibrary, library, envVisible, "void")
	})
	require.Equal(t, []string{"GPU-a", "MIG-b", "MIG-c"}, read[[]string](t, s.get(requesterapi.PathAccelerators)))

	require.NoError(t, os.Rename(dir.Path(), dir.Path()+".gone"))
	requireProblem(t, s.get(requesterapi.PathAccelerators), 500, requesterapi.CodeNoAccelerators, "nvmlInit")
}
