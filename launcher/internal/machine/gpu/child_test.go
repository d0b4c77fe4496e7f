package gpu_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
)

// childEnv makes the test binary a program that describes the GPUs of NVML: a
// process keeps the first library that it loads, so each needs its own.
const childEnv = "HOTSEAT_GPU_TEST_CHILD"

type described struct {
	Device gpu.Device
	Memory gpu.Memory
	Health gpu.Health
}

func describe() (exitCode int) {
	p, err := gpu.Open(gpu.Options{Source: "nvml"})
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	var all []described
	for _, d := range p.Devices() {
		m, err := p.Memory(d.UUID)
		if err != nil {
			fmt.Fprint(os.Stderr, err)
			return 1
		}
		all = append(all, described{Device: d, Memory: m, Health: p.Health(d.UUID)})
	}
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		return 1
	}
	if err := p.Close(); err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	return 0
}

// child runs describe with the environment.
func child(t *testing.T, env ...string) (all []described, failure string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append([]string{childEnv + "=1"}, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%v: %s", err, stderr.String())
		return nil, stderr.String()
	}
	require.NoError(t, json.Unmarshal(stdout, &all))
	return all, ""
}

func TestALibraryIsFoundByTheDynamicLinkerOrByItsPath(t *testing.T) {
	dir, file := machine(t)
	path := library(t, dir)
	simulated := open(t, gpu.Options{Source: "file:" + file})
	folder := holders(t, dir)
	require.NoError(t, folder.Set("GPU-c", os.Getpid(), 7*gib))

	var want []described
	for _, d := range simulated.Devices() {
		want = append(want, described{Device: d, Memory: memory(t, simulated, d.UUID), Health: gpu.Health{OK: true}})
	}
	for name, env := range map[string]string{
		"by LD_LIBRARY_PATH":         "LD_LIBRARY_PATH=" + filepath.Dir(path),
		"by the variable of its own": gpu.EnvNVMLLibrary + "=" + path,
	} {
		t.Run(name, func(t *testing.T) {
			all, failure := child(t, env, simgpu.EnvDir+"="+dir)
			require.Empty(t, failure)
			require.Equal(t, want, all)
		})
	}
}

func TestAnOldDriverIsAskedOnlyWhatItKnows(t *testing.T) {
	path, err := fakenvml.BuildOld(t.TempDir())
	require.NoError(t, err)
	dir, _ := machine(t)
	folder := holders(t, dir)
	require.NoError(t, folder.Set("GPU-b", os.Getpid(), 7*gib))
	put(t, dir, "GPU-b", "remap_pending")

	all, failure := child(t, gpu.EnvNVMLLibrary+"="+path, simgpu.EnvDir+"="+dir)
	require.Empty(t, failure)
	require.Len(t, all, 4)
	b := all[2]
	require.Equal(t, "GPU-b", b.Device.UUID)
	require.Equal(t, gpu.Memory{
		TotalBytes: 40*gib + gib/2, UsedBytes: 7*gib + gib/2, FreeBytes: 33 * gib,
		Processes: []gpu.Process{{PID: os.Getpid(), Bytes: 7 * gib}}, ProcessesKnown: true,
	}, b.Memory)
	require.Contains(t, b.Health.Reason, "only a reset retires")
	require.True(t, all[3].Health.OK)
}

func TestALibraryThatCannotBeUsedIsNamedWithWhatToDo(t *testing.T) {
	empty := t.TempDir()
	for name, test := range map[string]struct {
		library string
		want    []string
	}{
		"it is not there":  {"/nowhere/libnvidia-ml.so.1", []string{"cannot load NVML", "/nowhere/libnvidia-ml.so.1", gpu.EnvNVMLLibrary, "simulated:2"}},
		"it is not NVML":   {"libc.so.6", []string{"libc.so.6 is not NVML", "simulated:2"}},
		"it has no driver": {library(t, empty), []string{"nvmlInit: Driver Not Loaded", "nvidia-smi"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := child(t, gpu.EnvNVMLLibrary+"="+test.library, simgpu.EnvDir+"="+empty)
			for _, want := range test.want {
				require.Contains(t, failure, want)
			}
		})
	}
}
