package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// exhaust leaves this process as many free descriptors as said, until release.
func exhaust(t *testing.T, free int) (release func()) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	least := limit
	least.Cur = min(limit.Cur, 200) // so that few have to be taken
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &least))
	var taken []int
	for {
		fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		require.NoError(t, err)
		taken = append(taken, fd)
	}
	require.GreaterOrEqual(t, len(taken), free)
	for range free {
		require.NoError(t, syscall.Close(taken[0]))
		taken = taken[1:]
	}
	return func() {
		for _, fd := range taken {
			_ = syscall.Close(fd)
		}
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
}

// lacking calls end with no descriptor free, then with one more each time,
// until it says that the tree is gone, and insists that it tells the truth.
func lacking(t *testing.T, end func(context.Context) error, pids ...int) {
	t.Helper()
	for free := 0; ; free++ {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		release := exhaust(t, free)
		err := end(ctx)
		release()
		cancel()
		if err != nil {
			continue
		}
		for _, pid := range pids {
			require.False(t, alive(pid), "process %d lives, of a tree that was said to be gone with %d free descriptors", pid, free)
		}
		return
	}
}

func TestATreeIsNotSaidToBeGoneForWantOfDescriptors(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			for name, c := range map[string]struct {
				kind string
				dead bool // the root has ended before
				end  func(*process.Process, context.Context) error
			}{
				"killed":                  {"session", false, (*process.Process).Kill},
				"killed without its root": {"session", true, (*process.Process).Kill},
				"of unmarked processes":   {"unmarked", true, (*process.Process).Kill},
				"stopped": {"session", false, func(p *process.Process, ctx context.Context) error {
					return p.Stop(ctx, 100*time.Millisecond)
				}},
			} {
				t.Run(name, func(t *testing.T) {
					h := newHost(t, mode)
					tree := h.start(t, "a", "parent "+c.kind)
					worker := tree.saysPID("worker")
					tree.says("ready")
					if c.dead {
						require.NoError(t, tree.Signal(syscall.SIGKILL))
						exited(t, tree.Process)
					}
					lacking(t, func(ctx context.Context) error { return c.end(tree.Process, ctx) }, tree.ID().PID, worker)
				})
			}
		})
	}
}

func TestAProcessIsNotSaidToHaveEndedForWantOfDescriptors(t *testing.T) {
	h := newHost(t, "none")
	id, worker := h.orphan(t)
	for free := 0; ; free++ {
		release := exhaust(t, free)
		p, err := h.Adopt("a", id)
		release()
		if err != nil {
			var gone *process.GoneError
			require.False(t, errors.As(err, &gone), "with %d free descriptors: %v", free, err)
			continue
		}
		require.ElementsMatch(t, []int{id.PID, worker}, p.Pids())
		stop(t, p)
		return
	}
}

func TestTreesAreNotOverlookedForWantOfDescriptors(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent plain")
			for free := 0; ; free++ {
				release := exhaust(t, free)
				found, err := h.Find()
				release()
				if err != nil {
					continue
				}
				require.Len(t, found, 1, fmt.Sprintf("with %d free descriptors", free))
				require.ElementsMatch(t, []int{c.ID().PID, worker}, found[0].PIDs)
				break
			}
			stop(t, c.Process)
		})
	}
}
