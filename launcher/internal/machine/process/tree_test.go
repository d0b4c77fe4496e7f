package process_test

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

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
					stop(t, c.Process)
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
			c, worker := h.startPair(t, "parent session")
			was, err := procfs.Read(worker)
			require.NoError(t, err)
			require.NoError(t, c.Signal(syscall.SIGKILL))
			exited(t, c.Process)
			passTick(t, c.ID().StartTime)
			other := withID(t, c.ID().PID)
			require.Equal(t, []int{worker}, c.Pids())
			require.NoError(t, c.Kill(patient(t)))
			// The ids that follow the chosen one are given out again, too.
			is, err := procfs.Read(worker)
			require.False(t, err == nil && is.StartTime == was.StartTime && is.Alive())
			require.True(t, alive(other))
			require.NoError(t, syscall.Kill(other, syscall.SIGKILL))
		})
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

// withID starts a leader of a session that has a certain process id. The
// kernel gives the id after ns_last_pid, see pid_namespaces(7).
func withID(t *testing.T, pid int) int {
	t.Helper()
	for range 500 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(itoa(pid-1)), 0); err != nil {
			t.Skipf("NOT TESTED: process ids cannot be chosen here: %v", err)
		}
		got, _, err := syscall.StartProcess("/bin/sleep", []string{"sleep", "300"}, &syscall.ProcAttr{
			Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		require.NoError(t, err)
		if got == pid {
			return got
		}
		require.NoError(t, syscall.Kill(got, syscall.SIGKILL))
	}
	require.Fail(t, "the id was not given")
	return 0
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
