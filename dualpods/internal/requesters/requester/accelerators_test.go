package requester

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/requesterapi"
	"hotseat.dev/hotseat/spec/simgpu"
)

func TestWhatTheEnvironmentMayNameAndWhatNot(t *testing.T) {
	for visible, want := range map[string]any{
		"GPU-a":                             []string{"GPU-a"},
		"GPU-b,GPU-a":                       []string{"GPU-b", "GPU-a"},
		"MIG-1-2,MIG-GPU-5/1/0":             []string{"MIG-1-2", "MIG-GPU-5/1/0"},
		"":                                  "is not set: ask for a GPU in the container's limits",
		"all":                               `is "all", which names no GPU`,
		"void":                              `is "void", which names no GPU`,
		"none":                              `is "none", which names no GPU`,
		"0":                                 "0 is an index",
		"GPU-a,1":                           "1 is an index",
		"0:1":                               "0:1 is an index",
		"GPU-a,":                            `"" is not the UUID`,
		"GPU-a, GPU-b":                      `" GPU-b" is not the UUID`,
		"GPU-":                              `"GPU-" is not the UUID`,
		"/var/run/nvidia-container-devices": `is not the UUID of a GPU: let the device plugin give UUIDs`,
		"GPU-a,GPU-b,GPU-a":                 "it has GPU-a twice",
	} {
		found, err := openAccelerators("env", environment(envVisible, visible))
		require.NoError(t, err)
		uuids, err := found.uuids()
		if list, ok := want.([]string); ok {
			require.NoError(t, err)
			assert.Equal(t, list, uuids)
			continue
		}
		require.ErrorContains(t, err, want.(string), visible)
		require.ErrorContains(t, err, envVisible)
	}
}

func TestAutoAsksNVMLOnlyWhereTheEnvironmentLeavesItOpen(t *testing.T) {
	for visible, want := range map[string]accelerators{
		"GPU-a": &fromEnv{}, "all": &fromEnv{}, "none": &fromEnv{},
		"": &either{}, "void": &either{}, "0": &either{},
	} {
		found, err := openAccelerators("auto", environment(envVisible, visible))
		require.NoError(t, err)
		require.IsType(t, want, found, visible)
	}
	found, err := openAccelerators("", environment(envNVMLLibrary, "/nowhere/libnvidia-ml.so.1"))
	require.NoError(t, err)
	_, err = found.uuids()
	require.ErrorContains(t, err, envVisible+" is not set", "both are told")
	require.ErrorIs(t, err, errNobodyKnows)
}

func TestTheMemoryOfSimulatedGPUsIsWhatProcessesHold(t *testing.T) {
	dir, err := simgpu.Create(filepath.Join(t.TempDir(), "gpus"), []simgpu.GPU{
		{UUID: "GPU-a", Index: 0, Product: "A", MemoryTotalBytes: 80 << 30},
		{UUID: "GPU-b", Index: 1, Product: "B", MemoryTotalBytes: 80 << 30},
		{UUID: "GPU-c", Index: 2, Product: "C", MemoryTotalBytes: 80 << 30},
	})
	require.NoError(t, err)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), 5<<20+1))
	require.NoError(t, dir.Set("GPU-c", os.Getpid(), 1<<30))
	s := start(t, func(o *Options) {
		o.Getenv = environment(envVisible, "GPU-a,GPU-b", simgpu.EnvDir, dir.Path())
	})
	got := s.get(requesterapi.PathAcceleratorMemoryUsage)
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, requesterapi.MemoryUsage{"GPU-a": 6, "GPU-b": 0}, read[requesterapi.MemoryUsage](t, got))

	s = start(t, func(o *Options) {
		o.Getenv = environment(envVisible, "GPU-x", simgpu.EnvDir, dir.Path())
	})
	requireProblem(t, s.get(requesterapi.PathAcceleratorMemoryUsage), 500, requesterapi.CodeInternal, `no simulated GPU "GPU-x"`)
}

func TestMemoryThatNobodyKnowsOfIsNotSaidToBeNone(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Getenv = environment(envVisible, "GPU-a", envNVMLLibrary, "/nowhere/libnvidia-ml.so.1")
	})
	requireProblem(t, s.get(requesterapi.PathAcceleratorMemoryUsage), 501, requesterapi.CodeNotSupported, "cannot find out how much device memory is in use")
}
