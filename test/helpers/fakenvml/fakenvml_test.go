package fakenvml_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/fakenvml"
	"hotseat.dev/hotseat/test/helpers/patience"
)

const gib = uint64(1) << 30

var library nv.Interface

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakenvml-")
	if err == nil {
		var path string
		path, err = fakenvml.Build(dir)
		library = nv.New(nv.WithLibraryPath(path))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// start initialises the library over two GPUs, one of which is two MIG devices.
func start(t *testing.T) *simgpu.Dir {
	t.Helper()
	dir, err := simgpu.Create(filepath.Join(t.TempDir(), "gpus"), []simgpu.GPU{
		{UUID: "GPU-a", Index: 0, Product: "Whole", MemoryTotalBytes: 80 * gib},
		{UUID: "MIG-b", Index: 3, Product: "Slice", MemoryTotalBytes: 10 * gib},
		{UUID: "MIG-c", Index: 3, Product: "Slice", MemoryTotalBytes: 20 * gib},
	})
	require.NoError(t, err)
	t.Setenv(simgpu.EnvDir, dir.Path())
	require.Equal(t, nv.SUCCESS, library.InitWithFlags(0))
	t.Cleanup(func() { require.Equal(t, nv.SUCCESS, library.Shutdown()) })
	return dir
}

func device(t *testing.T, uuid string) nv.Device {
	t.Helper()
	d, ret := library.DeviceGetHandleByUUID(uuid)
	require.Equal(t, nv.SUCCESS, ret)
	return d
}

func TestADeviceSaysWhatTheFolderSays(t *testing.T) {
	start(t)
	count, ret := library.DeviceGetCount()
	require.Equal(t, nv.SUCCESS, ret)
	require.Equal(t, 2, count)
	driver, ret := library.SystemGetDriverVersion()
	require.Equal(t, nv.SUCCESS, ret)
	require.NotEmpty(t, driver)

	d := device(t, "GPU-a")
	name, _ := d.GetName()
	require.Equal(t, "Whole", name)
	index, ret := d.GetIndex()
	require.Equal(t, nv.SUCCESS, ret)
	require.Zero(t, index)
	minor, ret := d.GetMinorNumber()
	require.Equal(t, nv.SUCCESS, ret)
	require.Zero(t, minor)
	mode, _, ret := d.GetMigMode()
	require.Equal(t, nv.SUCCESS, ret)
	require.Equal(t, nv.DEVICE_MIG_DISABLE, mode)

	_, ret = library.DeviceGetHandleByUUID("GPU-x")
	require.Equal(t, nv.ERROR_NOT_FOUND, ret)
	_, ret = library.DeviceGetHandleByIndex(2)
	require.Equal(t, nv.ERROR_INVALID_ARGUMENT, ret)
}

func TestAGPUInMIGModeIsTheSumOfItsDevices(t *testing.T) {
	dir := start(t)
	require.NoError(t, dir.Set("MIG-c", os.Getpid(), 3*gib))
	board, ret := library.DeviceGetHandleByIndex(1)
	require.Equal(t, nv.SUCCESS, ret)
	mode, _, _ := board.GetMigMode()
	require.Equal(t, nv.DEVICE_MIG_ENABLE, mode)
	pci, ret := board.GetPciInfo()
	require.Equal(t, nv.SUCCESS, ret)
	require.Equal(t, uint32(4), pci.Bus)
	memory, ret := board.GetMemoryInfo_v2()
	require.Equal(t, nv.SUCCESS, ret)
	require.Equal(t, 27*gib, memory.Free)
	require.Equal(t, 3*gib, memory.Used)
	require.Equal(t, memory.Total, memory.Free+memory.Used+memory.Reserved)

	var uuids []string
	for i := range 2 {
		mig, ret := board.GetMigDeviceHandleByIndex(i)
		require.Equal(t, nv.SUCCESS, ret)
		uuid, _ := mig.GetUUID()
		uuids = append(uuids, uuid)
	}
	require.Equal(t, []string{"MIG-b", "MIG-c"}, uuids)
	_, ret = board.GetMigDeviceHandleByIndex(2)
	require.Equal(t, nv.ERROR_NOT_FOUND, ret)
}

// TestWhoHoldsMemoryIsDecidedAsBySimgpu puts each kind of file there and
// compares.
func TestWhoHoldsMemoryIsDecidedAsBySimgpu(t *testing.T) {
	dir := start(t)
	reaped, zombie := exec.CommandContext(t.Context(), "true"), exec.CommandContext(t.Context(), "true")
	require.NoError(t, reaped.Run())
	require.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", zombie.Process.Pid))
		return err == nil && string(stat[len(strconv.Itoa(zombie.Process.Pid)):][:10]) == " (true) Z "
	}, patience.Wait(), time.Millisecond)
	self, dead := os.Getpid(), reaped.Process.Pid
	write := func(name string, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir.Path(), "GPU-a", name), []byte(text), 0o600))
	}
	for name, test := range map[string]struct {
		put  func()
		want []simgpu.Holder
	}{
		"one that lives":                 {func() { require.NoError(t, dir.Set("GPU-a", self, 5)) }, []simgpu.Holder{{PID: self, Bytes: 5}}},
		"a plain number of the shell":    {func() { write(strconv.Itoa(self), "7\n") }, []simgpu.Holder{{PID: self, Bytes: 7}}},
		"one that is gone":               {func() { require.NoError(t, dir.Set("GPU-a", dead, 5)) }, nil},
		"a zombie":                       {func() { require.NoError(t, dir.Set("GPU-a", zombie.Process.Pid, 5)) }, nil},
		"nothing":                        {func() { write(strconv.Itoa(self), "0") }, nil},
		"an empty file":                  {func() { write(strconv.Itoa(self), "") }, nil},
		"names that are no process":      {func() { write("0"+strconv.Itoa(self), "5"); write("."+strconv.Itoa(self), "5"); write("x1", "5") }, nil},
		"memory that is freed late":      {func() { require.NoError(t, dir.SetUntil("GPU-a", dead, 5, time.Now().Add(time.Hour))) }, []simgpu.Holder{{PID: dead, Bytes: 5}}},
		"memory that was freed late":     {func() { require.NoError(t, dir.SetUntil("GPU-a", dead, 5, time.Now().Add(-time.Second))) }, nil},
		"one that lives past its moment": {func() { require.NoError(t, dir.SetUntil("GPU-a", self, 5, time.Now().Add(-time.Hour))) }, []simgpu.Holder{{PID: self, Bytes: 5}}},
		"a file of an earlier process": {func() {
			require.NoError(t, dir.Set("GPU-a", self, 5))
			old := time.Now().Add(-24 * time.Hour)
			require.NoError(t, os.Chtimes(filepath.Join(dir.Path(), "GPU-a", strconv.Itoa(self)), old, old))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(dir.Path(), "GPU-a")
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.Mkdir(folder, 0o700))
			test.put()
			holders, err := dir.Holders("GPU-a")
			require.NoError(t, err)
			require.Equal(t, test.want, holders)
			infos, ret := device(t, "GPU-a").GetComputeRunningProcesses()
			require.Equal(t, nv.SUCCESS, ret)
			var listed []simgpu.Holder
			for _, info := range infos {
				listed = append(listed, simgpu.Holder{PID: int(info.Pid), Bytes: info.UsedGpuMemory})
			}
			require.Equal(t, test.want, listed)
		})
	}
}

func TestSwitchesActAtOnceAndOnTheirGPUOnly(t *testing.T) {
	dir := start(t)
	a, b := device(t, "GPU-a"), device(t, "MIG-b")
	lost := filepath.Join(dir.Path(), "GPU-a", string(simgpu.FaultLost))
	require.NoError(t, os.WriteFile(lost, nil, 0o600))
	_, ret := a.GetMemoryInfo()
	require.Equal(t, nv.ERROR_GPU_IS_LOST, ret)
	require.Equal(t, "GPU is lost", library.ErrorString(ret))
	_, ret = b.GetMemoryInfo()
	require.Equal(t, nv.SUCCESS, ret)
	require.NoError(t, os.Remove(lost))
	_, ret = a.GetMemoryInfo()
	require.Equal(t, nv.SUCCESS, ret)

	require.NoError(t, os.WriteFile(filepath.Join(dir.Path(), "refuse"), []byte("nvmlDeviceGetName\n"), 0o600))
	_, ret = a.GetName()
	require.Equal(t, nv.ERROR_NOT_SUPPORTED, ret)
	_, ret = a.GetUUID()
	require.Equal(t, nv.SUCCESS, ret)
}

func TestThereIsNoDriverWithoutAFolder(t *testing.T) {
	t.Setenv(simgpu.EnvDir, t.TempDir())
	require.Equal(t, nv.ERROR_DRIVER_NOT_LOADED, library.Init())
	_, ret := library.DeviceGetCount()
	require.Equal(t, nv.ERROR_UNINITIALIZED, ret)
}

func TestTheLibrariesAreBuiltUnderTheNameTheyAreLoadedBy(t *testing.T) {
	for name, build := range map[string]func(string) (string, error){
		"of now": fakenvml.Build, "of an old driver": fakenvml.BuildOld,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, err := build(dir)
			require.NoError(t, err)
			require.Equal(t, filepath.Join(dir, "libnvidia-ml.so.1"), path)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1, "the sources are left")
		})
	}
	_, err := fakenvml.Build(filepath.Join(t.TempDir(), "not", "there"))
	require.ErrorContains(t, err, "cannot build libnvidia-ml.so.1")
}
