package process_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// helping starts a shell as a helper, which says a line before it goes on.
func helping(t *testing.T, h *host, memory int64, script string) (*process.Helper, *exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), "FILE="+filepath.Join(t.TempDir(), "file"))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	helper, err := h.StartHelper(process.HelperPrefix+"fetch", memory, cmd)
	require.NoError(t, err)
	line := make([]byte, 100)
	n, err := out.Read(line)
	require.True(t, err == nil || errors.Is(err, io.EOF), "%v", err)
	return helper, cmd, strings.TrimSpace(string(line[:n]))
}

func TestOfAHelperThatHasEndedNothingIsLeft(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			helper, cmd, said := helping(t, h, 0, "setsid sh -c 'echo $$; while :; do sleep 1; done' & wait")
			left, err := strconv.Atoi(said)
			require.NoError(t, err)
			require.True(t, alive(left))
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			require.True(t, alive(left))
			helper.End()
			require.False(t, alive(left))
			require.Empty(t, take(t, h).groups)
			again, cmd, _ := helping(t, h, 0, "echo here")
			require.NoError(t, cmd.Wait(), "its name is free again")
			again.End()
		})
	}
}

func TestAHelperThatCannotBeStartedLeavesNothing(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			for range 2 {
				_, err := h.StartHelper(process.HelperPrefix+"fetch", 0, exec.Command("/nonexistent"))
				require.ErrorIs(t, err, os.ErrNotExist)
				require.Empty(t, take(t, h).groups)
			}
			_, err := h.StartHelper("fetch", 0, exec.Command("/bin/true"))
			require.ErrorContains(t, err, "must begin with @")
		})
	}
}

func TestAHelperIsFoundByTheNextLauncherAndAnEmptyGroupIsRemoved(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			_, cmd, _ := helping(t, h, 0, "echo here; sleep 300")
			require.NoError(t, h.Close())
			require.NoError(t, h.open())
			found, err := h.Find()
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, process.HelperPrefix+"fetch", found[0].Name)
			require.NoError(t, cmd.Process.Kill())
			require.Error(t, cmd.Wait())
			require.NoError(t, h.Clear(t.Context(), found[0].Name))

			_, err = h.groups.Create(process.HelperPrefix + "fetch")
			require.NoError(t, err)
			require.NoError(t, h.Close())
			require.NoError(t, h.open())
			require.Empty(t, take(t, h).groups)
		})
	}
}

// The kernel drops what is in main memory of a helper's files where it takes too much,
// and kills the helper where that is not enough.
func TestTheMemoryOfAHelperIsLimited(t *testing.T) {
	const limit = 16 << 20
	h := newHost(t, cgroup.V1)
	helper, cmd, most := helping(t, h, limit, `dd if=/dev/zero of="$FILE" bs=1M count=64 2>/dev/null; cat /sys/fs/cgroup/memory$(sed -n s/.*:memory://p /proc/self/cgroup)/memory.max_usage_in_bytes`)
	require.NoError(t, cmd.Wait())
	if helper.Unlimited != nil {
		helper.End()
		t.Skipf("NOT TESTED: the memory of a group cannot be limited here: %v", helper.Unlimited)
	}
	bytes, err := strconv.ParseInt(most, 10, 64)
	require.NoError(t, err, most)
	require.Positive(t, bytes)
	require.LessOrEqual(t, bytes, int64(limit))
	require.False(t, helper.OOMKilled())
	helper.End()

	helper, cmd, _ = helping(t, h, limit, "head -c 64M /dev/zero | tail >/dev/null; echo over")
	_ = cmd.Wait() // the shell need not be the one that is killed
	require.True(t, helper.OOMKilled())
	helper.End()
}

func TestWhereThereIsNoControllerAHelperIsNotLimitedAndSaysSo(t *testing.T) {
	h := newHost(t, cgroup.None)
	helper, cmd, said := helping(t, h, 1<<20, "echo here")
	require.NoError(t, cmd.Wait())
	require.Equal(t, "here", said)
	require.ErrorIs(t, helper.Unlimited, cgroup.ErrNoLimit)
	require.False(t, helper.OOMKilled())
	helper.End()
}
