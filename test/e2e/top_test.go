package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/harness"
)

const (
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
)

// terminal is a pseudo-terminal with a program in its foreground.
type terminal struct {
	n      *Node
	person *os.File
	cmd    *exec.Cmd
	all    lockedWriter // what the program has written
	exited chan struct{}
}

// onTerminal starts a client command on a terminal of its own.
func (n *Node) onTerminal(args ...string) *terminal {
	n.t.Helper()
	person, program, err := harness.OpenTerminal()
	require.NoError(n.t, err)
	ctx, kill := context.WithCancel(context.Background())
	c := &terminal{n: n, person: person, cmd: exec.CommandContext(ctx, bin.launcher, args...), exited: make(chan struct{})}
	c.all.w = &bytes.Buffer{}
	c.resize(80, 24)
	c.cmd.Env = append(n.env, "HOTSEAT_SERVER="+n.URL)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = program, program, program
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(n.t, c.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		part := make([]byte, 4096)
		for {
			k, err := person.Read(part)
			_, _ = c.all.Write(part[:k])
			if err != nil {
				return
			}
		}
	}()
	go func() { _ = c.cmd.Wait(); close(c.exited) }()
	n.t.Cleanup(func() {
		kill()
		<-c.exited
		_ = program.Close()
		<-read // ends when no process has the other end open
		_ = person.Close()
	})
	return c
}

func (c *terminal) resize(width, height uint16) {
	c.n.t.Helper()
	require.NoError(c.n.t, unix.IoctlSetWinsize(int(c.person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

// types types on the keyboard of the terminal.
func (c *terminal) types(keys string) {
	c.n.t.Helper()
	_, err := c.person.WriteString(keys)
	require.NoError(c.n.t, err)
}

// frame is the last whole frame, in lines.
func (c *terminal) frame() []string {
	frames := strings.Split(c.all.String(), "\x1b[H")
	last := frames[len(frames)-1]
	if !strings.HasSuffix(last, "\x1b[J") {
		last = frames[max(0, len(frames)-2)]
	}
	return strings.Split(strings.NewReplacer("\x1b[K", "", "\x1b[J", "", "\r", "").Replace(last), "\n")
}

// shows waits for a frame with a line that has all words.
func (c *terminal) shows(words ...string) {
	c.n.t.Helper()
	c.n.Eventually("the terminal shows "+strings.Join(words, " "), func() bool {
		for _, line := range c.frame() {
			found := 0
			for _, word := range words {
				if strings.Contains(line, word) {
					found++
				}
			}
			if found == len(words) {
				return true
			}
		}
		return false
	})
}

// echoes reports whether the terminal shows what people type.
func (c *terminal) echoes() bool {
	c.n.t.Helper()
	settings, err := unix.IoctlGetTermios(int(c.person.Fd()), unix.TCGETS)
	require.NoError(c.n.t, err)
	return settings.Lflag&unix.ECHO != 0
}

func TestTopShowsASwapAndSurvivesARestart(t *testing.T) {
	t.Parallel()
	n, _ := door(t)
	n.Awake("a", On(0))
	c := n.onTerminal("top")
	c.resize(200, 24)
	c.shows("front door at ")
	c.shows("a ", "awake")
	assert.False(t, c.echoes())
	n.SwapDone(toNew("b", On(0)))
	c.shows("b ", "awake")
	c.shows("a ", "sleeping")
	c.shows("b ", "done", "drain ", "sleep ")
	n.Kill9()
	c.shows("NO ANSWER for ")
	c.shows("b ", "awake")
	n.Start()
	n.Eventually("it has an answer again", func() bool { return !strings.Contains(strings.Join(c.frame(), "\n"), "NO ANSWER") })
	n.SwapDone(map[string]any{"in": map[string]any{"instance_id": "a"}})
	c.shows("a ", "awake")
	c.types("\x03")
	n.Eventually("it ends", func() bool {
		select {
		case <-c.exited:
			return true
		default:
			return false
		}
	})
	assert.Equal(t, 0, c.cmd.ProcessState.ExitCode())
	n.Eventually("the terminal is as before", func() bool { return strings.HasSuffix(c.all.String(), leaveScreen) })
	assert.True(t, c.echoes())
}

func TestTopShowsASwapThatWaits(t *testing.T) {
	t.Parallel()
	n, _ := door(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	release := stall(t, n)
	c := n.onTerminal("top")
	c.shows("b ", "waits for go")
	release()
	c.shows("b ", "refused")
}

func TestTopFitsATerminalThatChangesItsSize(t *testing.T) {
	t.Parallel()
	n, _ := door(t)
	n.Awake("a-model-with-a-rather-long-name-that-no-terminal-has-room-for", On(0))
	c := n.onTerminal("top")
	for _, width := range []uint16{20, 200, 40, 80} {
		c.resize(width, 24)
		n.Eventually("the frame fits", func() bool {
			widest := 0
			for _, line := range c.frame() {
				widest = max(widest, uniseg.StringWidth(line))
			}
			return widest <= int(width) && widest > min(int(width), 60)/2
		})
	}
	c.resize(80, 3)
	c.shows("more lines")
	assert.Len(t, c.frame(), 3)
}

func TestTopGivesTheTerminalBackWhenItIsSuspended(t *testing.T) {
	t.Parallel()
	n, _ := door(t)
	c := n.onTerminal("top")
	c.shows("no models")
	c.types("\x1a")
	n.Eventually("it is suspended", func() bool {
		process, err := procfs.NewProc(c.cmd.Process.Pid)
		require.NoError(t, err)
		stat, err := process.Stat()
		require.NoError(t, err)
		return stat.State == "T" && strings.HasSuffix(c.all.String(), leaveScreen)
	})
	assert.True(t, c.echoes())
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
	n.Eventually("it draws again", func() bool {
		return strings.Count(c.all.String(), enterScreen) == 2 && !strings.HasSuffix(c.all.String(), enterScreen)
	})
	n.Awake("a", On(0))
	c.shows("a ", "awake")
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	n.Eventually("the terminal is as before", func() bool { return strings.HasSuffix(c.all.String(), leaveScreen) })
}
