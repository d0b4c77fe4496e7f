package gpu_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/simgpu"
)

// library is the stand-in for NVML, told to answer from dir.
func library(t *testing.T, dir string) string {
	t.Helper()
	path, err := buildLibrary()
	require.NoError(t, err)
	t.Setenv(simgpu.EnvDir, dir)
	return path
}

// machine lists its GPUs against the order of their buses; the one on the
// first bus is in MIG mode.
func machine(t *testing.T) (dir, file string) {
	t.Helper()
	return writeList(t,
		simgpu.GPU{UUID: "GPU-c", Index: 2, Product: "GPU \"80GB\"", MemoryTotalBytes: 80 * gib},
		simgpu.GPU{UUID: "GPU-b", Index: 1, Product: "GPU 40GB", MemoryTotalBytes: 40 * gib},
		simgpu.GPU{UUID: "MIG-a1", Index: 0, Product: "GPU MIG 1g.5gb", MemoryTotalBytes: 5 * gib},
		simgpu.GPU{UUID: "MIG-a2", Index: 0, Product: "GPU MIG 2g.10gb", MemoryTotalBytes: 10 * gib})
}

func openNVML(t *testing.T, dir string) gpu.Provider {
	t.Helper()
	return open(t, gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir)})
}

func refuse(t *testing.T, dir string, functions ...string) {
	t.Helper()
	text := strings.Join(functions, "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refuse"), []byte(text), 0o600))
}

func TestNVMLAndTheFolderBehindItSayTheSame(t *testing.T) {
	dir, file := machine(t)
	driver, simulated := openNVML(t, dir), open(t, gpu.Options{Source: "file:" + file})
	require.Equal(t, "nvml", driver.Kind())
	require.Nil(t, driver.Env())
	require.Equal(t, simulated.Devices(), driver.Devices())
	require.Len(t, driver.Devices(), 4)

	folder := holders(t, dir)
	same := func() {
		t.Helper()
		for _, d := range driver.Devices() {
			require.Equal(t, memory(t, simulated, d.UUID), memory(t, driver, d.UUID))
			require.Equal(t, simulated.Health(d.UUID), driver.Health(d.UUID))
		}
	}
	same()
	for i, d := range driver.Devices() {
		require.NoError(t, folder.Set(d.UUID, os.Getpid(), uint64(i+1)*gib))
		require.NoError(t, folder.Set(d.UUID, os.Getppid(), 12345))
	}
	same()
	require.Len(t, memory(t, driver, "MIG-a1").Processes, 2)
	require.Equal(t, 4*gib+12345, memory(t, driver, "GPU-c").UsedBytes)
	require.NoError(t, folder.Set("GPU-b", os.Getpid(), 100*gib))
	require.NoError(t, folder.Set("GPU-c", os.Getpid(), 0))
	same()
}

func TestDevicesStandInTheOrderOfTheirBuses(t *testing.T) {
	dir, _ := machine(t)
	require.Equal(t, []gpu.Device{
		{UUID: "MIG-a1", Index: 0, Product: "GPU MIG 1g.5gb", MemoryTotalBytes: 5 * gib, MIG: true},
		{UUID: "MIG-a2", Index: 0, Product: "GPU MIG 2g.10gb", MemoryTotalBytes: 10 * gib, MIG: true},
		{UUID: "GPU-b", Index: 1, Product: "GPU 40GB", MemoryTotalBytes: 40 * gib},
		{UUID: "GPU-c", Index: 2, Product: "GPU \"80GB\"", MemoryTotalBytes: 80 * gib},
	}, openNVML(t, dir).Devices())
}

func TestMemoryIsReadWithVersion1WhereVersion2IsNotSupported(t *testing.T) {
	dir, _ := machine(t)
	p := openNVML(t, dir)
	require.Equal(t, 80*gib, memory(t, p, "GPU-c").TotalBytes)
	refuse(t, dir, "nvmlDeviceGetMemoryInfo_v2")
	m := memory(t, p, "GPU-c")
	require.Equal(t, 80*gib+gib/2, m.TotalBytes, "what is reserved cannot be told apart")
	require.Equal(t, gib/2, m.UsedBytes)
	require.Equal(t, 80*gib, m.FreeBytes)
}

func TestAGPUWithoutMemoryOfItsOwnSharesTheMainMemory(t *testing.T) {
	dir, _ := writeList(t, simgpu.GPU{UUID: "GPU-u", Product: "NVIDIA GB10", MemoryTotalBytes: gib})
	refuse(t, dir, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")
	require.NoError(t, holders(t, dir).Set("GPU-u", os.Getpid(), gib/2))
	p := openNVML(t, dir)
	proc, err := procfs.NewDefaultFS()
	require.NoError(t, err)
	info, err := proc.Meminfo()
	require.NoError(t, err)
	require.Equal(t, []gpu.Device{{UUID: "GPU-u", Product: "NVIDIA GB10", MemoryTotalBytes: *info.MemTotalBytes}}, p.Devices())
	m := memory(t, p, "GPU-u")
	require.Equal(t, *info.MemTotalBytes, m.TotalBytes)
	require.Equal(t, m.TotalBytes, m.UsedBytes+m.FreeBytes)
	require.NotZero(t, m.FreeBytes)
	require.Equal(t, []gpu.Process{{PID: os.Getpid(), Bytes: gib / 2}}, m.Processes)
	require.True(t, p.Health("GPU-u").OK)
}

func TestProcessesAreUnknownWhenTheDriverDoesNotSay(t *testing.T) {
	dir, _ := machine(t)
	p := openNVML(t, dir)
	folder := holders(t, dir)
	require.NoError(t, folder.Set("GPU-b", os.Getpid(), gib))
	unknown := gpu.Memory{TotalBytes: 40 * gib, UsedBytes: gib, FreeBytes: 39 * gib}

	put(t, dir, "GPU-b", "no_process_memory")
	require.Equal(t, unknown, memory(t, p, "GPU-b"))
	require.NoError(t, os.Remove(filepath.Join(dir, "GPU-b", "no_process_memory")))
	require.True(t, memory(t, p, "GPU-b").ProcessesKnown)
	refuse(t, dir, "nvmlDeviceGetComputeRunningProcesses_v3")
	require.Equal(t, unknown, memory(t, p, "GPU-b"))
}

func TestEachFaultMakesItsGPUIllAndIsToldAlikeByBoth(t *testing.T) {
	for fault, reason := range map[simgpu.Fault]string{
		simgpu.FaultLost:    "fallen off the bus",
		simgpu.FaultRemap:   "no spare memory rows",
		simgpu.FaultPending: "only a reset retires",
		simgpu.FaultECC:     "uncorrectable memory errors",
	} {
		t.Run(string(fault), func(t *testing.T) {
			dir, file := machine(t)
			driver, simulated := openNVML(t, dir), open(t, gpu.Options{Source: "file:" + file})
			for _, uuid := range []string{"GPU-c", "MIG-a2"} {
				require.Equal(t, gpu.Health{OK: true}, driver.Health(uuid))
				put(t, dir, uuid, string(fault))
				require.Contains(t, driver.Health(uuid).Reason, reason)
				require.False(t, driver.Health(uuid).OK)
				require.Equal(t, driver.Health(uuid), simulated.Health(uuid))
			}
			require.True(t, driver.Health("GPU-b").OK)
			require.False(t, driver.Health("MIG-a1").OK, "it is on the board of MIG-a2")
		})
	}
}

func TestHealthThatTheDriverCannotTellIsNotHeldAgainstTheGPU(t *testing.T) {
	dir, _ := machine(t)
	p := openNVML(t, dir)
	put(t, dir, "GPU-b", "ecc")
	put(t, dir, "GPU-b", "remap_failed")
	refuse(t, dir, "nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEccErrors")
	require.True(t, p.Health("GPU-b").OK)
	put(t, dir, "GPU-b", "lost")
	require.False(t, p.Health("GPU-b").OK)
}

func TestTheMemoryOfALostGPUIsAnErrorThatSaysWhatToDo(t *testing.T) {
	dir, file := machine(t)
	put(t, dir, "GPU-b", "lost")
	_, err := open(t, gpu.Options{Source: "file:" + file}).Memory("GPU-b")
	require.ErrorContains(t, err, "GPU-b")
	require.ErrorContains(t, err, "reset it")
	require.NoError(t, os.Remove(filepath.Join(dir, "GPU-b", "lost")))

	p := openNVML(t, dir)
	put(t, dir, "GPU-b", "lost")
	_, err = p.Memory("GPU-b")
	require.ErrorContains(t, err, "cannot read the memory of GPU GPU-b: nvmlDeviceGetMemoryInfo_v2: GPU is lost")
	require.ErrorContains(t, err, "reset it")
	require.NotZero(t, memory(t, p, "GPU-c").TotalBytes)
}

func TestAGPUThatIsLostAtStartIsLeftOutWithAWarning(t *testing.T) {
	dir, _ := machine(t)
	put(t, dir, "GPU-b", "lost")
	var log bytes.Buffer
	p := open(t, gpu.Options{
		Source: "nvml", NVMLLibrary: library(t, dir),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.Len(t, p.Devices(), 3)
	require.Equal(t, 1, p.Devices()[2].Index, "CUDA does not count the lost one")
	require.Contains(t, log.String(), "nvmlDeviceGetHandleByIndex: GPU is lost")

	put(t, dir, "MIG-a1", "lost")
	put(t, dir, "GPU-c", "lost")
	_, err := gpu.Open(gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir)})
	require.ErrorContains(t, err, "nvmlDeviceGetHandleByIndex: GPU is lost")
}

func TestAutoTakesNVMLWhereItFindsAGPU(t *testing.T) {
	dir, _ := machine(t)
	p := open(t, gpu.Options{NVMLLibrary: library(t, dir), StateDir: t.TempDir()})
	require.Equal(t, "nvml", p.Kind())
}

func TestADriverWithoutGPUsIsAnErrorAndMakesAutoSimulate(t *testing.T) {
	dir, _ := writeList(t)
	opts := gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir), SimDir: filepath.Join(t.TempDir(), "gpus")}
	_, err := gpu.Open(opts)
	require.ErrorContains(t, err, "NVML finds no GPU")
	opts.Source = "auto"
	require.Equal(t, "simulated", open(t, opts).Kind())
}

func TestAfterCloseAndForAnUnknownGPUNothingIsAsked(t *testing.T) {
	dir, _ := machine(t)
	p := openNVML(t, dir)
	_, err := p.Memory("GPU-x")
	require.ErrorContains(t, err, "GPU-x")
	require.False(t, p.Health("GPU-x").OK)

	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.Memory("GPU-b")
	require.ErrorContains(t, err, "closed")
	require.False(t, p.Health("GPU-b").OK)
	require.Len(t, p.Devices(), 4)
}

func TestManyMayAskWhileOneCloses(t *testing.T) {
	dir, _ := machine(t)
	p := openNVML(t, dir)
	var asked, all sync.WaitGroup
	for _, d := range p.Devices() {
		asked.Add(1)
		all.Go(func() {
			_, err := p.Memory(d.UUID)
			asked.Done()
			for err == nil {
				_ = p.Health(d.UUID)
				_, err = p.Memory(d.UUID)
			}
			if !strings.Contains(err.Error(), "closed") {
				t.Error(err)
			}
		})
	}
	asked.Wait()
	require.NoError(t, p.Close())
	all.Wait()
}

func TestOpeningAndClosingLeavesNoFile(t *testing.T) {
	dir, _ := machine(t)
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	cycle := func() {
		p, err := gpu.Open(gpu.Options{Source: "nvml", NVMLLibrary: library(t, dir)})
		require.NoError(t, err)
		memory(t, p, "GPU-b")
		require.NoError(t, p.Close())
	}
	cycle()
	before := files()
	for range 20 {
		cycle()
	}
	require.Equal(t, before, files())
}
