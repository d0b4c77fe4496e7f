package process_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/exits"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// perform starts this binary in a role, outside of any Host.
func perform(t *testing.T, role string) (*exec.Cmd, voice) {
	t.Helper()
	output, input, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = cast(os.Environ(), role)
	cmd.Stdout = input
	require.NoError(t, cmd.Start())
	require.NoError(t, input.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		output.Close()
	})
	return cmd, listen(t, output)
}

// orphan is an instance "a" whose launcher was killed.
func (h *host) orphan(t *testing.T) (id process.ID, worker int) {
	t.Helper()
	launcher, said := perform(t, "launcher "+h.mark+" "+string(h.mode)+" "+h.exitDir)
	// The launcher and its instance speak at the same time.
	lines := said.saysAll("id", "worker", "ready")
	require.NoError(t, json.Unmarshal([]byte(lines["id"]), &id))
	worker, err := strconv.Atoi(lines["worker"])
	require.NoError(t, err)
	require.NoError(t, launcher.Process.Kill())
	require.ErrorContains(t, launcher.Wait(), "killed")
	return id, worker
}

func TestAnotherLauncherAdoptsWhatAKilledOneStarted(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			id, worker := h.orphan(t)
			p, err := h.Adopt("a", id)
			require.NoError(t, err)
			require.Equal(t, id, p.ID())
			require.ElementsMatch(t, []int{id.PID, worker}, p.Pids())
			require.NoError(t, p.Signal(syscall.SIGKILL))
			require.Equal(t, -int(syscall.SIGKILL), code(t, exited(t, p)), "an orphan of ours is our child")
			require.Equal(t, []int{worker}, p.Pids())
			stop(t, p)
			require.False(t, alive(worker))
		})
	}
}

func TestTreesAreFoundWhenNothingIsKnownOfThem(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			id, worker := h.orphan(t)
			pids := []int{id.PID, worker}
			slices.Sort(pids)
			found, err := h.Find()
			require.NoError(t, err)
			require.Equal(t, []process.Found{{Name: "a", Root: id, PIDs: pids}}, found)

			require.NoError(t, h.Clear(patient(t), "a"))
			found, err = h.Find()
			require.NoError(t, err)
			require.Empty(t, found)
			require.False(t, alive(id.PID) || alive(worker))
			require.NoError(t, h.Clear(patient(t), "a"), "a tree that is gone")
		})
	}
}

func TestATreeWithoutItsRootIsFoundAsSuch(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent plain")
			require.NoError(t, c.Signal(syscall.SIGKILL))
			exited(t, c.Process)
			found, err := h.Find()
			require.NoError(t, err)
			require.Equal(t, []process.Found{{Name: "a", PIDs: []int{worker}}}, found)
			stop(t, c.Process)
		})
	}
}

func TestWhatIsGoneIsNotAdoptedAndItsRecordedExitIsTold(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "other", "wait")
			c.says("ready")
			id := c.ID()
			recorder, err := exits.NewRecorder(h.exitDir, id.BootID)
			require.NoError(t, err)
			ended := process.ID{PID: id.PID, StartTime: id.StartTime - 1, BootID: id.BootID} // its id is another's now
			require.NoError(t, recorder.Record(ended.PID, ended.StartTime, syscall.WaitStatus(syscall.SIGSEGV)))

			_, err = h.Adopt("a", ended)
			var gone *process.GoneError
			require.ErrorAs(t, err, &gone)
			require.Equal(t, -int(syscall.SIGSEGV), code(t, gone.Exit))
			require.Equal(t, syscall.SIGSEGV, gone.Exit.Signal)

			_, err = h.Adopt("a", process.ID{PID: id.PID, StartTime: id.StartTime, BootID: "before"})
			require.ErrorAs(t, err, &gone, "the machine was started again since")
			require.Nil(t, gone.Exit.Code)
			_, err = h.Adopt("a", process.ID{PID: 1 << 30, StartTime: 1, BootID: id.BootID})
			require.ErrorAs(t, err, &gone)

			require.True(t, alive(id.PID))
			stop(t, c.Process)
			require.Equal(t, syscall.SIGTERM, c.Exit().Signal, "its status was not taken by the failed adoption")
		})
	}
}

func TestUnderInitTheExitOfAnAdoptedChildIsKnown(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			init, said := perform(t, "init "+h.mark+" "+string(h.mode)+" "+h.exitDir)
			serve := said.saysPID("serve")
			said.says("ready")
			require.NoError(t, syscall.Kill(serve, syscall.SIGKILL))
			require.NotEqual(t, serve, said.saysPID("serve"), "started again")
			instance := said.saysPID("adopted")
			stat, err := procfs.Read(instance)
			require.NoError(t, err)
			require.Equal(t, init.Process.Pid, stat.PPID)
			require.NoError(t, syscall.Kill(instance, syscall.SIGKILL))
			require.Equal(t, "-9", said.says("exit"))
			require.NoError(t, init.Wait())
		})
	}
}
