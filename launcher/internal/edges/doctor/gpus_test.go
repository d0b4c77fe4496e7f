package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
)

func TestGPUsAreAskedOfTheDriver(t *testing.T) {
	dir := t.TempDir()
	library, err := fakenvml.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv(gpu.EnvNVMLLibrary, library)
	t.Setenv(simgpu.EnvDir, dir)
	_, err = simgpu.Create(dir, []simgpu.GPU{
		{UUID: "GPU-well", Index: 0, Product: "H100", MemoryTotalBytes: 80 << 30},
		{UUID: "GPU-lost", Index: 1, Product: "H100", MemoryTotalBytes: 80 << 30},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "GPU-lost", string(simgpu.FaultECC)), nil, 0o600))

	e := &examination{Options: Options{proc: "/proc", cgroupRoot: "/sys/fs/cgroup"}, gpus: findGPUs("auto", nil)}
	require.Contains(t, checkDriver(t.Context(), e)[0].Finding, "NVML found 2 GPUs")
	results := checkGPUs(t.Context(), e)
	require.Len(t, results, 2)
	require.Equal(t, Result{Name: "gpu 0", Status: OK, Finding: "H100 GPU-well, 80.0 GiB of 80.0 GiB free"}, results[0])
	require.Equal(t, Fail, results[1].Status)
	require.Contains(t, results[1].Finding, "uncorrectable")
	require.True(t, e.gpus.real())
	require.Equal(t, []string{"H100"}, e.gpus.kinds())
	require.Contains(t, checkHostMemory(t.Context(), e)[0].Finding, "the GPUs have 160.0 GiB")
}
