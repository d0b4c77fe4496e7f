package gpu_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
)

const gib = uint64(1) << 30

// buildDir holds the library that the tests of NVML share.
var buildDir string

var buildLibrary = sync.OnceValues(func() (string, error) { return fakenvml.Build(buildDir) })

// holders opens a folder of simulated GPUs, as an engine does.
func holders(t *testing.T, dir string) *simgpu.Dir {
	t.Helper()
	folder, err := simgpu.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, folder.Close()) })
	return folder
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(describe())
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "fakenvml-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range []string{simgpu.EnvDir, gpu.EnvNVMLLibrary} {
		_ = os.Unsetenv(name)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(buildDir)
		os.Exit(code)
	}))
}

func open(t *testing.T, opts gpu.Options) gpu.Provider {
	t.Helper()
	p, err := gpu.Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// writeList makes a folder whose gpus.json lists gpus in that very order.
func writeList(t *testing.T, gpus ...simgpu.GPU) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "gpus.json")
	text, err := json.Marshal(gpus)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return dir, file
}

// put makes the files, given as folder and name, that switch a fault.
func put(t *testing.T, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
}

func memory(t *testing.T, p gpu.Provider, uuid string) gpu.Memory {
	t.Helper()
	m, err := p.Memory(uuid)
	require.NoError(t, err)
	return m
}

func TestSimulatedGPUsAreMadeInTheStateFolder(t *testing.T) {
	state := t.TempDir()
	p := open(t, gpu.Options{Source: "simulated:11", StateDir: state})
	require.Equal(t, "simulated", p.Kind())
	require.Equal(t, []string{"HOTSEAT_SIMGPU_DIR=" + filepath.Join(state, "simgpu")}, p.Env())
	devices := p.Devices()
	require.Len(t, devices, 11)
	for i, d := range devices {
		require.Equal(t, gpu.Device{
			UUID:             fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", i),
			Index:            i,
			Product:          "Simulated GPU 80GiB",
			MemoryTotalBytes: 80 * gib,
		}, d)
	}
	require.Equal(t, "GPU-00000000-0000-0000-0000-00000000000a", devices[10].UUID)
}

func TestSimulatedGPUsAreMadeWhereTheEnvironmentSays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "here")
	t.Setenv(simgpu.EnvDir, dir)
	p := open(t, gpu.Options{Source: "simulated:1", StateDir: t.TempDir()})
	require.Equal(t, []string{"HOTSEAT_SIMGPU_DIR=" + dir}, p.Env())
	require.FileExists(t, filepath.Join(dir, "gpus.json"))
}

func TestChildrenAreToldAnAbsoluteFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	p := open(t, gpu.Options{Source: "simulated:1", StateDir: "state"})
	require.Equal(t, []string{"HOTSEAT_SIMGPU_DIR=" + filepath.Join(here, "state", "simgpu")}, p.Env())
}

func TestAFolderOfGPUsIsUsedAsItIsWhenItHasAsMany(t *testing.T) {
	dir, file := writeList(t, simgpu.GPU{UUID: "GPU-mine", Index: 4, Product: "Small", MemoryTotalBytes: gib})
	p := open(t, gpu.Options{Source: "simulated:1", SimDir: dir})
	require.Equal(t, []gpu.Device{{UUID: "GPU-mine", Index: 4, Product: "Small", MemoryTotalBytes: gib}}, p.Devices())

	_, err := gpu.Open(gpu.Options{Source: "simulated:2", SimDir: dir})
	require.ErrorContains(t, err, file)
	require.ErrorContains(t, err, "lists 1")
}

func TestAFileListsTheGPUsAndItsFolderAccounts(t *testing.T) {
	dir, file := writeList(t,
		simgpu.GPU{UUID: "GPU-b", Index: 1, Product: "Big", MemoryTotalBytes: 40 * gib},
		simgpu.GPU{UUID: "GPU-a", Index: 0, Product: "Big", MemoryTotalBytes: 40 * gib})
	other := filepath.Join(dir, "..", "other", "two-gpus.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(other), 0o700))
	require.NoError(t, os.Link(file, other))
	for name, path := range map[string]string{"of the usual name": file, "of another name": other} {
		t.Run(name, func(t *testing.T) {
			p := open(t, gpu.Options{Source: "file:" + path})
			require.Equal(t, "file", p.Kind())
			require.Equal(t, "GPU-a", p.Devices()[0].UUID)
			require.Equal(t, []string{"HOTSEAT_SIMGPU_DIR=" + filepath.Dir(path)}, p.Env())

			folder := holders(t, filepath.Dir(path))
			require.NoError(t, folder.Set("GPU-b", os.Getpid(), gib))
			require.Equal(t, gib, memory(t, p, "GPU-b").UsedBytes)
		})
	}
}

func TestSimulatedMemoryIsWhatLivingProcessesHold(t *testing.T) {
	p := open(t, gpu.Options{Source: "simulated:2", StateDir: t.TempDir()})
	uuid := p.Devices()[0].UUID
	require.Equal(t, gpu.Memory{TotalBytes: 80 * gib, FreeBytes: 80 * gib, ProcessesKnown: true}, memory(t, p, uuid))

	folder := holders(t, p.Env()[0][len(simgpu.EnvDir)+1:])
	require.NoError(t, folder.Set(uuid, os.Getpid(), 30*gib))
	require.Equal(t, gpu.Memory{
		TotalBytes: 80 * gib, UsedBytes: 30 * gib, FreeBytes: 50 * gib,
		Processes: []gpu.Process{{PID: os.Getpid(), Bytes: 30 * gib}}, ProcessesKnown: true,
	}, memory(t, p, uuid))
	require.NoError(t, folder.Set(uuid, os.Getpid(), 90*gib))
	require.Equal(t, 80*gib, memory(t, p, uuid).UsedBytes)
	require.Zero(t, memory(t, p, uuid).FreeBytes)
	require.Zero(t, memory(t, p, p.Devices()[1].UUID).UsedBytes)

	_, err := p.Memory("GPU-x")
	require.ErrorContains(t, err, "GPU-x")
	require.False(t, p.Health("GPU-x").OK)
}

func TestABadSourceIsToldWhatWouldBeRight(t *testing.T) {
	_, empty := writeList(t)
	for source, want := range map[string]string{
		"amd":                 "use auto, nvml, simulated:N (such as simulated:2) or file:PATH",
		"simulated":           "simulated:N (such as simulated:2)",
		"simulated:":          "a number from 1 to 128",
		"simulated:two":       "a number from 1 to 128",
		"simulated:0":         "a number from 1 to 128",
		"simulated:129":       "a number from 1 to 128",
		"file":                "file:PATH",
		"file:":               "file:PATH",
		"file:/nowhere/g":     "/nowhere/g",
		"file:" + empty:       "lists no GPU",
		"nvml:1":              "use auto, nvml,",
		"file:" + t.TempDir(): "is a directory",
	} {
		t.Run(source, func(t *testing.T) {
			_, err := gpu.Open(gpu.Options{Source: source, StateDir: t.TempDir()})
			require.ErrorContains(t, err, want)
		})
	}
	_, err := gpu.Open(gpu.Options{Source: "simulated:2"})
	require.ErrorContains(t, err, simgpu.EnvDir)
}

func TestAutoSimulatesTwoGPUsLoudlyWhereThereIsNone(t *testing.T) {
	for _, source := range []string{"", "auto"} {
		var log bytes.Buffer
		p := open(t, gpu.Options{
			Source: source, StateDir: t.TempDir(), NVMLLibrary: "/nowhere/libnvidia-ml.so.1",
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.Equal(t, "simulated", p.Kind())
		require.Len(t, p.Devices(), 2)
		require.Contains(t, log.String(), "level=WARN")
		require.Contains(t, log.String(), "SIMULATING")
		require.Contains(t, log.String(), "/nowhere/libnvidia-ml.so.1")
	}
}
