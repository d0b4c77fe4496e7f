package simgpu_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// The test binary is a holder in a PID namespace of its own when holdEnv names
// the folder: of as many bytes of GPU-a as holdBytesEnv says.
const (
	holdEnv      = "HOTSEAT_SIMGPU_TEST_HOLD"
	holdBytesEnv = "HOTSEAT_SIMGPU_TEST_HOLD_BYTES"
)

// hold reserves memory and tells what it sees. Until its input ends it writes
// its file again for each line.
func hold(path, bytes string) error {
	dir, err := simgpu.Open(path)
	if err != nil {
		return err
	}
	want, err := strconv.ParseUint(bytes, 10, 64)
	if err != nil {
		return err
	}
	if err := dir.Reserve("GPU-a", os.Getpid(), want); err != nil {
		return err
	}
	holders, err := dir.Holders("GPU-a")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(holders); err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		for range 500 {
			if err := dir.Set("GPU-a", os.Getpid(), want); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode("done"); err != nil {
			return err
		}
	}
	return nil
}

// container is a process in a PID namespace of its own, whose process 1 it is.
type container struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors strings.Builder
}

func newContainer(t *testing.T, path string, bytes uint64) *container {
	t.Helper()
	c := &container{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), holdEnv+"="+path, holdBytesEnv+"="+strconv.FormatUint(bytes, 10))
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		c.cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
	}
	var err error
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewReader(out)
	c.cmd.Stderr = &c.errors
	err = c.cmd.Start()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("NOT TESTED: THIS MACHINE LETS NOBODY MAKE A PID NAMESPACE")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.in.Close(); _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

// sees is what the process saw once it had its memory.
func (c *container) sees(t *testing.T) (holders []simgpu.Holder) {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &holders))
	return holders
}

func TestProcessesOfSeveralPIDNamespacesSeeEachOthersMemory(t *testing.T) {
	dir := made(t)
	self := os.Getpid()
	require.NoError(t, dir.Reserve("GPU-a", self, 10*gib))
	one := newContainer(t, dir.Path(), 20*gib)
	assert.Equal(t, []simgpu.Holder{{Bytes: 10 * gib}, {PID: 1, Bytes: 20 * gib}}, one.sees(t))
	two := newContainer(t, dir.Path(), 20*gib)
	assert.Len(t, two.sees(t), 3, "process 1 of one namespace is not process 1 of another")
	all := []simgpu.Holder{{Bytes: 20 * gib}, {Bytes: 20 * gib}, {PID: self, Bytes: 10 * gib}}
	require.Equal(t, all, holders(t, dir, "GPU-a"))

	three := newContainer(t, dir.Path(), 40*gib)
	require.Error(t, three.cmd.Wait())
	assert.Contains(t, three.errors.String(), "out of memory")

	require.NoError(t, one.cmd.Process.Kill())
	require.Eventually(t, func() bool { return len(holders(t, dir, "GPU-a")) == 2 }, patience.Wait(), time.Millisecond)
	require.NoError(t, dir.Reserve("GPU-a", self, 60*gib))
	entries, err := os.ReadDir(dir.Path() + "/GPU-a")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.Name()[0] != '.' {
			names = append(names, e.Name())
		}
	}
	assert.Len(t, names, 2, "what the killed one left is removed: %v", names)
	require.NoError(t, two.in.Close())
	require.NoError(t, two.cmd.Wait())
	require.Equal(t, []simgpu.Holder{{PID: self, Bytes: 60 * gib}}, holders(t, dir, "GPU-a"))
}

func TestAHolderOfAnotherPIDNamespaceIsSeenAlsoWhileItWritesItsFile(t *testing.T) {
	dir := made(t)
	c := newContainer(t, dir.Path(), gib)
	c.sees(t)
	_, err := io.WriteString(c.in, "write\n")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { _, err := c.out.ReadBytes('\n'); done <- err }()
	for {
		require.Equal(t, []simgpu.Holder{{Bytes: gib}}, holders(t, dir, "GPU-a"))
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
	}
}

func TestWhatThisProcessHoldsEndsInOtherPIDNamespacesWithItsDir(t *testing.T) {
	dir := made(t)
	require.NoError(t, dir.Set("GPU-a", os.Getpid(), gib))
	require.NoError(t, dir.Close())
	c := newContainer(t, dir.Path(), gib)
	assert.Equal(t, []simgpu.Holder{{PID: 1, Bytes: gib}}, c.sees(t))
}
