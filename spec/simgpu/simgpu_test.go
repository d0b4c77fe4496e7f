package simgpu_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/spec/simgpu"
)

const (
	gib = uint64(1) << 30
	// childEnv makes the test binary a process that lives until its input
	// ends.
	childEnv = "HOTSEAT_SIMGPU_TEST_CHILD"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(holdEnv); path != "" {
		if err := hold(path, os.Getenv(holdBytesEnv)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(childEnv) != "" {
		_, _ = os.Stdout.WriteString("here\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a real process that ends when its input does.
func child(t *testing.T) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return cmd.Process.Pid, func() { _ = stdin.Close() }
}

func two() []simgpu.GPU {
	return []simgpu.GPU{
		{UUID: "GPU-a", Index: 0, Product: "Simulated", MemoryTotalBytes: 80 * gib},
		{UUID: "GPU-b", Index: 1, Product: "Simulated", MemoryTotalBytes: 40 * gib},
	}
}

func made(t *testing.T) *simgpu.Dir {
	t.Helper()
	dir, err := simgpu.Create(filepath.Join(t.TempDir(), "gpus"), two())
	require.NoError(t, err)
	return dir
}

func TestWhatWasCreatedIsWhatOthersOpen(t *testing.T) {
	dir := made(t)
	require.DirExists(t, filepath.Join(dir.Path(), "GPU-a"))
	require.DirExists(t, filepath.Join(dir.Path(), "GPU-b"))

	opened, err := simgpu.Open(dir.Path())
	require.NoError(t, err)
	require.Equal(t, two(), opened.GPUs())
	require.Equal(t, dir.Path(), opened.Path())
}

func TestTheListIsSortedByIndexAndNotSharedWithTheCaller(t *testing.T) {
	list := two()
	list[0], list[1] = list[1], list[0]
	dir, err := simgpu.Create(t.TempDir(), list)
	require.NoError(t, err)
	require.Equal(t, two(), dir.GPUs())
	dir.GPUs()[0].UUID = "GPU-changed"
	require.Equal(t, two(), dir.GPUs())
}

func TestAFolderIsCreatedAgainOnlyWithTheSameGPUs(t *testing.T) {
	dir := made(t)
	again, err := simgpu.Create(dir.Path(), two())
	require.NoError(t, err)
	require.Equal(t, two(), again.GPUs())

	file := filepath.Join(dir.Path(), "gpus.json")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = simgpu.Create(dir.Path(), two()[:1])
	require.ErrorContains(t, err, file)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}

func TestOpeningWhatIsNotThereOrMakesNoSenseNamesTheFile(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "gpus.json")
	_, err := simgpu.Open(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, file)

	require.NoError(t, os.WriteFile(file, []byte(`{"uuid": "GPU-a"}`), 0o600))
	_, err = simgpu.Open(path)
	require.ErrorContains(t, err, file)
	_, err = simgpu.Create(path, two())
	require.ErrorContains(t, err, file)
}

func TestAListThatCannotBeMeantIsRefused(t *testing.T) {
	gpu := func(uuid string, index int) simgpu.GPU {
		return simgpu.GPU{UUID: uuid, Index: index, MemoryTotalBytes: gib}
	}
	for name, test := range map[string]struct {
		list []simgpu.GPU
		want string
	}{
		"a UUID that leaves the folder":      {[]simgpu.GPU{gpu("../x", 0)}, "cannot be the name of a folder"},
		"a UUID that is hidden":              {[]simgpu.GPU{gpu(".x", 0)}, "cannot be the name of a folder"},
		"a UUID that is the list":            {[]simgpu.GPU{gpu("gpus.json", 0)}, "cannot be the name of a folder"},
		"no UUID":                            {[]simgpu.GPU{gpu("", 0)}, "cannot be the name of a folder"},
		"a UUID twice":                       {[]simgpu.GPU{gpu("GPU-a", 0), gpu("GPU-a", 1)}, "uuid GPU-a is there twice"},
		"an index twice":                     {[]simgpu.GPU{gpu("GPU-a", 0), gpu("GPU-b", 0)}, "index 0 is there twice"},
		"a MIG device of a whole GPU":        {[]simgpu.GPU{gpu("GPU-a", 0), gpu("MIG-b", 0)}, "index 0 is there twice"},
		"a whole GPU that is sliced as well": {[]simgpu.GPU{gpu("MIG-b", 0), gpu("GPU-a", 0)}, "index 0 is there twice"},
		"a negative index":                   {[]simgpu.GPU{gpu("GPU-a", -1)}, "negative"},
		"no memory":                          {[]simgpu.GPU{{UUID: "GPU-a"}}, "memory_total_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gpus")
			_, err := simgpu.Create(path, test.list)
			require.ErrorContains(t, err, test.want)
			require.NoDirExists(t, path)
		})
	}
}

func TestMIGDevicesShareAnIndex(t *testing.T) {
	dir, err := simgpu.Create(t.TempDir(), []simgpu.GPU{
		{UUID: "MIG-b", Index: 0, MemoryTotalBytes: gib},
		{UUID: "MIG-a", Index: 0, MemoryTotalBytes: gib},
		{UUID: "GPU-c", Index: 1, MemoryTotalBytes: gib},
	})
	require.NoError(t, err)
	require.Equal(t, "MIG-a", dir.GPUs()[0].UUID)
	require.True(t, dir.GPUs()[1].MIG())
	require.False(t, dir.GPUs()[2].MIG())
}

func TestFaultsAreTheFilesOfThatName(t *testing.T) {
	dir := made(t)
	faults, err := dir.Faults("GPU-a")
	require.NoError(t, err)
	require.Empty(t, faults)

	for _, name := range []string{"ecc", "lost"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir.Path(), "GPU-a", name), nil, 0o600))
	}
	faults, err = dir.Faults("GPU-a")
	require.NoError(t, err)
	require.Equal(t, []simgpu.Fault{simgpu.FaultLost, simgpu.FaultECC}, faults)
	faults, err = dir.Faults("GPU-b")
	require.NoError(t, err)
	require.Empty(t, faults)
	_, err = dir.Faults("GPU-x")
	require.ErrorContains(t, err, "GPU-x")
}
