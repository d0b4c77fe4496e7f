package modelpull

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
)

func TestModelfetchHasLowestPriority(t *testing.T) {
	s, _ := store(t)
	pid := 0
	t.Setenv(childEnv, "is deaf")
	exe, err := os.Executable()
	require.NoError(t, err)
	_, err = Run(t.Context(), Options{
		Store: s, Program: []string{exe}, URI: "x://m", Stderr: io.Discard, Admitted: func(*fetchapi.Manifest) {},
		Start: func(cmd *exec.Cmd) (func() bool, error) {
			end, err := startUnlimited(cmd)
			pid = cmd.Process.Pid
			return end, err
		},
		Progress: func(fetchapi.Line) {
			score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
			assert.NoError(t, err)
			assert.Equal(t, oomScore, strings.TrimSpace(string(score)))
			nice, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
			assert.NoError(t, err)
			assert.Equal(t, 20-niceness, nice) // as the kernel tells it
			class, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, ioOfThread, uintptr(pid), 0)
			assert.Zero(t, errno)
			assert.EqualValues(t, ioPriority, class)
			assert.NoError(t, unix.Kill(pid, unix.SIGKILL))
		},
	})
	require.ErrorContains(t, err, "ended before it was done")
}

func TestOutOfMemoryErrorNamesTheSetting(t *testing.T) {
	s, _ := store(t)
	t.Setenv(childEnv, "an end")
	exe, err := os.Executable()
	require.NoError(t, err)
	_, err = Run(t.Context(), Options{
		Store: s, Program: []string{exe}, URI: "x://m", Stderr: io.Discard,
		Start: func(cmd *exec.Cmd) (func() bool, error) { return func() bool { return true }, cmd.Start() },
	})
	require.ErrorContains(t, err, "raise model_fetch_memory")
}
