package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// client is a command of the launcher's own client, in a process of its own.
type client struct {
	*exec.Cmd
	out, err lockedWriter
	exited   chan struct{}
}

// launcher starts a client command. It is killed when the test ends.
func (n *Node) launcher(args ...string) *client {
	n.t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	c := &client{Cmd: exec.CommandContext(ctx, bin.launcher, args...), exited: make(chan struct{})}
	c.out.w, c.err.w = &bytes.Buffer{}, &bytes.Buffer{}
	c.Env = append(n.env, "HOTSEAT_SERVER="+n.URL)
	c.Stdout, c.Stderr = &c.out, &c.err
	require.NoError(n.t, c.Start())
	go func() { _ = c.Wait(); close(c.exited) }()
	n.t.Cleanup(func() { kill(); <-c.exited })
	return c
}

// ends waits for the end of a command and gives its exit code.
func (n *Node) ends(c *client) int {
	n.t.Helper()
	n.Eventually(fmt.Sprintf("%v ends", c.Args[1:]), func() bool {
		select {
		case <-c.exited:
			return true
		default:
			return false
		}
	})
	return c.ProcessState.ExitCode()
}

func TestCommandsThatWaitSayAtOnceThatNothingAnswersAtTheAddress(t *testing.T) {
	t.Parallel()
	n := NewStoppedNode(t)
	for _, args := range [][]string{
		{"logs", "-f", "a"}, {"run", "--wait", "m"}, {"swap", "a"}, {"swap", "--gpu", "0", "--", "m"}, {"sleep", "a"}, {"wake", "a"}, {"stop", "a"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			c := n.launcher(args...)
			assert.Equal(t, 1, n.ends(c))
			assert.Contains(t, c.err.String(), n.URL)
			assert.Contains(t, c.err.String(), "--server or HOTSEAT_SERVER names another address")
			assert.NotContains(t, c.err.String(), "trying again")
		})
	}
}

func TestCommandsThatFollowSayThatTheConnectionBrokeOffAndGoOn(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0), "--sim-log-lines", "3")
	follower := n.launcher("logs", "-f", "a")
	waiter := n.launcher("run", "--id", "b", "--gpu", "1", "--wait", "--", "b", "--sim-load-time", "3s")
	n.Eventually("both have something", func() bool {
		return follower.out.String() != "" && strings.Contains(waiter.err.String(), "b is starting")
	})
	n.Kill9()
	for _, c := range []*client{follower, waiter} {
		n.Eventually("it says so", func() bool { return strings.Contains(c.err.String(), "trying again") })
	}
	n.Start()
	assert.Equal(t, 0, n.ends(waiter), waiter.err.String())
	assert.Equal(t, "b\n", waiter.out.String())
	n.Delete("a")
	assert.Equal(t, 0, n.ends(follower), follower.err.String())
}

func TestStopOfSeveralIsOneDocument(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, id := range []string{"a", "b", "c"} {
		n.Create(id, Spec(id, nil))
	}
	c := n.launcher("stop", "-o", "json", "a", "nobody", "b")
	assert.Equal(t, 1, n.ends(c), "one of them is not there")
	var stopped []launcherapi.Instance
	require.NoError(t, json.Unmarshal([]byte(c.out.String()), &stopped), c.out.String())
	require.Len(t, stopped, 2)
	assert.Equal(t, "a", stopped[0].InstanceID)
	assert.Equal(t, "b", stopped[1].InstanceID)

	c = n.launcher("stop", "-o", "json", "c")
	assert.Equal(t, 0, n.ends(c))
	var one launcherapi.Instance
	require.NoError(t, json.Unmarshal([]byte(c.out.String()), &one), "of one it is what the API gives")
	assert.Equal(t, "c", one.InstanceID)
}

func TestPsWritesNoControlCharacters(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Create("a", map[string]any{"args": []string{"m\x1b[2Jm\u202e", "--served-model-name", "a"}, "gpu_uuids": On(0), "start_method": "auto"})
	assert.Empty(t, n.Await("a", "awake").Reason, "the stand-in can never be forked, which preloaders says once")
	c := n.launcher("ps")
	assert.Equal(t, 0, n.ends(c), c.err.String())
	assert.NotContains(t, c.out.String(), "\x1b")
	assert.NotContains(t, c.out.String(), "\u202e")
	assert.Contains(t, c.out.String(), `m\x1b[2Jm\u202e`)
}

func TestPeopleRunAskAndPutToSleepByCommandsAlone(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	run := func(args ...string) string {
		t.Helper()
		c := n.launcher(args...)
		require.Equal(t, 0, n.ends(c), "%v: %s", args, c.err.String())
		return c.out.String()
	}
	require.Equal(t, "qwen\n", run("run", "--gpu", "0", "--id", "qwen", "m"))
	require.Equal(t, "qwen is awake\n", run("wait", "qwen"))
	require.NotEmpty(t, strings.TrimSpace(run("chat", "qwen", "--", "What", "is", "it?")))
	run("sleep", "qwen")
	require.Equal(t, "qwen is sleeping\n", run("wait", "qwen", "--for", "asleep"))
	require.Contains(t, run("get", "qwen"), "sleeping at level 1")
	missing := n.launcher("get", "qwne")
	require.Equal(t, 1, n.ends(missing))
	require.Equal(t, "launcher: no instance \"qwne\"; there are: qwen; did you mean qwen?\n", missing.err.String())
	run("stop", "qwen")
	require.Equal(t, "qwen is gone\n", run("wait", "qwen", "--for", "stopped"))
}
