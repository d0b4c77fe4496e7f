package process_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	require.NoError(t, err)
	return n
}

func TestAStopLeavesNothingOfATree(t *testing.T) {
	workers := map[string]string{
		"a plain worker":                                "plain",
		"a worker that left the process group":          "group",
		"a worker that left the session":                "session",
		"a worker that cleared its environment":         "unmarked",
		"a worker that ignores SIGTERM":                 "stubborn",
		"a worker that forked twice to lose its parent": "daemon",
	}
	for name, kind := range workers {
		t.Run(name, func(t *testing.T) {
			for _, mode := range modes {
				t.Run(string(mode), func(t *testing.T) {
					h := newHost(t, mode)
					c := h.start(t, "a", "parent "+kind)
					worker := c.saysPID("worker")
					require.Contains(t, c.Pids(), worker)
					require.Contains(t, c.Pids(), c.ID().PID)
					if kind == "stubborn" {
						require.NoError(t, c.Stop(patient(t), time.Second/2)) // it has the whole grace
					} else {
						stop(t, c.Process)
					}
					require.False(t, alive(worker))
					require.Empty(t, c.Pids())
				})
			}
		})
		t.Run(name+", after the root was killed", func(t *testing.T) {
			for _, mode := range modes {
				t.Run(string(mode), func(t *testing.T) {
					h := newHost(t, mode)
					c, worker := h.startPair(t, "parent "+kind)
					require.NoError(t, syscall.Kill(c.ID().PID, syscall.SIGKILL))
					require.Equal(t, -9, code(t, exited(t, c.Process)))
					require.True(t, alive(worker), "an orphan lives on")
					require.Equal(t, []int{worker}, c.Pids())
					stop(t, c.Process)
					require.False(t, alive(worker))
				})
			}
		})
	}
}

func TestAWorkerThatIsLinkedByItsParentOnlyIsKilled(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent child")
			require.NoError(t, c.Kill(patient(t)))
			require.False(t, alive(worker))
		})
	}
}

func TestAStopFindsAWorkerThatLosesItsParentByIt(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent child")
			stop(t, c.Process)
			require.False(t, alive(worker))
		})
	}
}

func TestAWorkerThatHidesCompletelyIsFoundByItsControlGroupOnly(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent hidden")
			stop(t, c.Process)
			if h.mode != cgroup.None {
				require.False(t, alive(worker))
				return
			}
			require.True(t, alive(worker), "nothing links it without a control group: the documentation says so")
			require.NoError(t, syscall.Kill(worker, syscall.SIGKILL))
		})
	}
}

func TestATreeThatRespawnsWhileItIsKilledIsGone(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "respawner")
			c.says("ready")
			require.GreaterOrEqual(t, len(c.Pids()), 50)
			require.NoError(t, c.Kill(patient(t)))
			require.Empty(t, c.Pids())
			found, err := h.Find()
			require.NoError(t, err)
			require.Empty(t, found)
		})
	}
}

func TestAnInstanceWhoseNameBeginsWithAnothersIsNotTouched(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			a, ab := h.start(t, "a", "parent session"), h.start(t, "ab", "parent session")
			workers := []int{ab.ID().PID, ab.saysPID("worker")}
			slices.Sort(workers)
			a.says("ready")
			ab.says("ready")
			require.NoError(t, a.Kill(patient(t)))
			require.Equal(t, workers, ab.Pids())
			require.True(t, alive(workers[0]) && alive(workers[1]))
			stop(t, ab.Process)
		})
	}
}

func TestAStopHarmsNoOtherProcess(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			bystander := exec.CommandContext(t.Context(), "/bin/sleep", "300")
			require.NoError(t, bystander.Start())
			// It says that it is of the same instance, of another launcher.
			impostor := exec.CommandContext(t.Context(), "/bin/sleep", "300")
			impostor.Env = []string{"HOTSEAT_INSTANCE=a", "HOTSEAT_LAUNCHER=" + h.mark + "-2"}
			require.NoError(t, impostor.Start())

			c := h.start(t, "a", "parent daemon")
			c.says("ready")
			require.NotContains(t, c.Pids(), os.Getpid())
			require.NoError(t, c.Kill(patient(t)))
			require.True(t, alive(bystander.Process.Pid))
			require.True(t, alive(impostor.Process.Pid))
			for _, cmd := range []*exec.Cmd{bystander, impostor} {
				require.NoError(t, cmd.Process.Kill())
				require.ErrorContains(t, cmd.Wait(), "killed")
			}
		})
	}
}

func TestAProcessThatWasGivenTheIdOfADeadRootIsNotTouched(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPairWithoutRoot(t)
			other := c.ID().PID
			require.True(t, alive(other))
			require.Equal(t, []int{worker}, c.Pids())
			require.NoError(t, c.Kill(patient(t)))
			require.False(t, alive(worker))
			require.True(t, alive(other))
			require.NoError(t, syscall.Kill(other, syscall.SIGKILL))
		})
	}
}

// startPairWithoutRoot starts an instance, ends its root, and gives the id of the root to
// a process that leads a session of its own. It begins anew when somebody else on the
// machine was given the id first.
func (h *host) startPairWithoutRoot(t *testing.T) (c *child, worker int) {
	t.Helper()
	for ctx := patient(t); ; {
		c, worker = h.startPair(t, "parent session")
		require.NoError(t, c.Signal(syscall.SIGKILL))
		exited(t, c.Process)
		passTick(t, c.ID().StartTime)
		err := startAs(c.ID().PID)
		if err == nil {
			return c, worker
		}
		require.NoError(t, c.Kill(ctx))
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
			t.Skipf("NOT TESTED: PROCESS IDS CANNOT BE CHOSEN HERE: %v", err)
		}
		require.ErrorIs(t, err, unix.EEXIST)
	}
}

// passTick returns when the clock tick, of a hundredth of a second, is over in
// which a process started: two that had one id in the same tick are the same to
// whoever looks.
func passTick(t *testing.T, tick uint64) {
	t.Helper()
	for {
		var now unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &now))
		if uint64(now.Nano())/10_000_000 > tick {
			return
		}
	}
}

// An engine may be forked by a helper that is an instance itself: it carries
// the helper's marks in its environment, in a session of its own.
func TestAChildThatOneInstanceForkedForAnotherBelongsToTheOther(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			helper := h.start(t, "helper", "parent session")
			forked := helper.saysPID("worker")
			helper.says("ready")
			h.move(t, "forked", forked)
			p, err := h.Adopt("forked", identify(t, helper.Process, forked))
			require.NoError(t, err)
			require.Equal(t, []int{forked}, p.Pids())
			require.NoError(t, helper.Kill(patient(t)))
			require.True(t, alive(forked))

			// It is our child now, so its exit is known exactly.
			require.NoError(t, p.Signal(syscall.SIGKILL))
			require.Equal(t, -int(syscall.SIGKILL), code(t, exited(t, p)))
			stop(t, p)
		})
	}
}

// move puts a process into the group of an instance, as whoever forks it does.
func (h *host) move(t *testing.T, name string, pid int) {
	t.Helper()
	g, err := h.groups.Create(name)
	require.NoError(t, err)
	doors, err := g.Doors()
	require.NoError(t, err)
	for _, door := range doors {
		_, err := door.WriteString(itoa(pid))
		require.NoError(t, err)
		require.NoError(t, door.Close())
	}
}

func identify(t *testing.T, like *process.Process, pid int) process.ID {
	t.Helper()
	stat, err := procfs.Read(pid)
	require.NoError(t, err)
	return process.ID{PID: pid, StartTime: stat.StartTime, BootID: like.ID().BootID}
}
