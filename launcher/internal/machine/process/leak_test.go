package process_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// lives is how many instances come and go: what each of them left would be counted that often.
const lives = 50

func TestManyLivesLeaveNothingBehind(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			life := func(n int) {
				c := command("a", "")
				c.Path, c.Args = "/bin/sh", []string{"sh", "-c", "(sleep 300 &) ; sleep 300"}
				p, err := h.Start(c)
				require.NoError(t, err)
				if n%4 == 0 {
					c.Name, c.Path = "b", "/nonexistent"
					_, err := h.Start(c)
					require.Error(t, err)
				}
				if n%2 == 0 {
					require.NoError(t, p.Signal(syscall.SIGKILL))
					exited(t, p)
				}
				require.NoError(t, p.Kill(patient(t)))
			}
			life(0) // what is made once is made now
			before := take(t, h)
			for n := range lives {
				life(n)
			}
			after := take(t, h)
			require.Equal(t, before.descriptors, after.descriptors)
			require.Empty(t, after.children)
			require.Empty(t, after.groups)
			require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before.goroutines+1 }, patience.Wait(), time.Millisecond)
		})
	}
}

type inventory struct {
	descriptors int
	goroutines  int
	children    []int
	groups      []string
}

func take(t *testing.T, h *host) inventory {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	children, err := procfs.Children()
	require.NoError(t, err)
	groups, err := filepath.Glob("/sys/fs/cgroup/*/hotseat-" + h.mark + "/i-*")
	require.NoError(t, err)
	return inventory{len(fds), runtime.NumGoroutine(), children, groups}
}
