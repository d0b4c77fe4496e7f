package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestAnExitIsSeenWithItsCode(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			for _, want := range []int{0, 7, 255} {
				p, err := h.Start(command("a", "exit "+itoa(want)))
				require.NoError(t, err)
				exit := exited(t, p)
				require.Equal(t, want, code(t, exit))
				require.Zero(t, exit.Signal)
				require.False(t, exit.OOMKilled)
				require.WithinDuration(t, time.Now(), exit.At, patience.Wait())
				stop(t, p)
			}
		})
	}
}

func TestADeathBySignalIsSeenWithItsSignal(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "wait")
			c.says("ready")
			require.Equal(t, process.Exit{}, c.Exit(), "while it runs")
			require.NoError(t, c.Signal(syscall.SIGKILL))
			exit := exited(t, c.Process)
			require.Equal(t, -int(syscall.SIGKILL), code(t, exit))
			require.Equal(t, syscall.SIGKILL, exit.Signal)
			require.ErrorIs(t, c.Signal(syscall.SIGKILL), os.ErrProcessDone)
			stop(t, c.Process)
		})
	}
}

func TestAStopLetsAChildEndGracefully(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "graceful")
			c.says("ready")
			stop(t, c.Process)
			require.Equal(t, 3, code(t, c.Exit()))
		})
	}
}

func TestAStopKillsAChildThatIgnoresSIGTERMAfterItsGrace(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "stubborn")
			c.says("ready")
			const grace = 100 * time.Millisecond
			began := time.Now()
			require.NoError(t, c.Stop(patient(t), grace))
			require.GreaterOrEqual(t, time.Since(began), grace)
			require.Equal(t, syscall.SIGKILL, c.Exit().Signal)
			require.False(t, c.Exit().OOMKilled)
		})
	}
}

func TestTheEndOfTheContextEndsTheGraceAndNotTheKill(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "stubborn")
			c.says("ready")
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan error)
			go func() { stopped <- c.Stop(ctx, time.Hour) }()
			cancel()
			require.NoError(t, <-stopped)
			require.Equal(t, syscall.SIGKILL, exited(t, c.Process).Signal)
		})
	}
}

func TestTheNameOfAProcessIsTakenUntilItIsStopped(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			p, err := h.Start(command("a", "exit 0"))
			require.NoError(t, err)
			exited(t, p)
			_, err = h.Start(command("a", "exit 0"))
			require.ErrorIs(t, err, process.ErrNameTaken)
			_, err = h.Adopt("a", p.ID())
			require.ErrorIs(t, err, process.ErrNameTaken)
			require.ErrorIs(t, h.Clear(t.Context(), "a"), process.ErrNameTaken)
			stop(t, p)
			stop(t, p) // a second stop finds nothing to do

			p, err = h.Start(command("a", "exit 0"))
			require.NoError(t, err)
			stop(t, p)
		})
	}
}

func TestAStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			for range 2 { // the name is free again
				c := command("a", "wait")
				c.Path = "/nonexistent/vllm"
				_, err := h.Start(c)
				require.ErrorIs(t, err, os.ErrNotExist)
				require.ErrorContains(t, err, "/nonexistent/vllm")

				c = command("a", "wait")
				c.Dir = "/nonexistent/folder"
				_, err = h.Start(c)
				require.ErrorContains(t, err, "/nonexistent/folder")
			}
			for _, name := range []string{"", "..", "a/b"} {
				_, err := h.Start(command(name, "wait"))
				require.Error(t, err)
			}
		})
	}
}

func TestAChildHasItsOwnSessionTheMarksAndThreeFiles(t *testing.T) {
	h := newHost(t, cgroup.None)
	output, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	c := command("a", "describe")
	c.Dir = t.TempDir()
	c.Output = output
	c.Env = append(c.Env, "HOTSEAT_INSTANCE=someone-else", "HOTSEAT_LAUNCHER=another", "HOTSEAT_INSTANCE=twice")
	p, err := h.Start(c)
	require.NoError(t, err)
	require.NoError(t, output.Close(), "the caller may close it at once")

	var said string
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(output.Name())
		said = string(text)
		return err == nil && strings.Contains(said, "ready")
	}, patience.Wait(), 5*time.Millisecond)
	folder, err := filepath.EvalSymlinks(c.Dir)
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		"leader true",
		"stdin /dev/null",
		"files 3",
		"marks HOTSEAT_INSTANCE=a HOTSEAT_LAUNCHER=" + h.mark,
		"folder " + folder,
		"ready", "",
	}, "\n"), said)
	stop(t, p)
}

func TestClosingTheHostHarmsNoChild(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c := h.start(t, "a", "wait")
			c.says("ready")
			require.NoError(t, h.Close())
			require.True(t, alive(c.ID().PID))
			select {
			case <-c.Done():
				require.Fail(t, "the end of a child that lives was announced")
			default:
			}
			_, err := h.Start(command("b", "wait"))
			require.ErrorIs(t, err, process.ErrClosed)
			require.NoError(t, h.groups.Close())

			require.NoError(t, h.open(), "the next launcher")
			p, err := h.Adopt("a", c.ID())
			require.NoError(t, err)
			stop(t, p)
		})
	}
}

func TestChildrenOfOtherCodeKeepTheirStatus(t *testing.T) {
	h := newHost(t, cgroup.None)
	for range 20 {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit 3")
		require.NoError(t, cmd.Start())
		c := h.start(t, "a", "exit 0") // makes the Host reap meanwhile
		exited(t, c.Process)
		stop(t, c.Process)
		require.ErrorContains(t, cmd.Wait(), "exit status 3")
	}
}

func TestAStopGivesTheEngineOfAWrapperItsGrace(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			c, worker := h.startPair(t, "parent finishing") // the parent does not handle SIGTERM
			stop(t, c.Process)
			require.Equal(t, "in order", c.says("finished"))
			require.Equal(t, syscall.SIGTERM, c.Exit().Signal)
			require.False(t, alive(worker))
		})
	}
}
