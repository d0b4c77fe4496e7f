//go:build vllm

package vllm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Life of an instance: an engine that dies while awake: failed, with exit code
// and cause; what it leaves behind is gone within seconds.
func TestADeadModelIsFailedAndNothingOfItIsLeft(t *testing.T) {
	n := newNode(t)
	// Two at a time start on two cores in good time.
	for _, pair := range [][]death{
		{{name: "api", title: "", exit: -9, cause: "killed"}, {name: "worker", title: "VLLM::Worker", exit: 0, cause: "engine_core_died"}},
		{{name: "core", title: "VLLM::EngineCore", exit: 0, cause: "engine_core_died"}},
	} {
		for g, d := range pair {
			n.create(d.name, gpu(g), arguments(modelA, "tiny-a"))
		}
		for _, d := range pair {
			n.await(d.name, "awake")
		}
		for _, d := range pair {
			n.show(d.name+" dies", func(t *testing.T) { n.dies(t, d) })
		}
	}
}

// death is what is killed of an instance, and what is seen of it.
type death struct {
	name  string // of the instance
	title string
	exit  int
	cause string
}

func (n *node) dies(t *testing.T, d death) {
	t.Helper()
	i := n.get(d.name)
	ask(t, i)
	before := len(tree(i))
	assert.GreaterOrEqual(t, before, 3, "API server, EngineCore, Worker")
	kill9(t, i, d.title)
	failed := n.await(d.name, "failed")
	n.gone(i)
	assert.Equal(t, launcherapi.StatusStopped, failed.Status)
	require.NotNil(t, failed.ExitCode, failed.Reason)
	assert.Equal(t, d.exit, *failed.ExitCode)
	assert.Equal(t, d.cause, failed.Cause, failed.Reason)
	assert.NotEmpty(t, failed.LastLogLines)
	n.remove(d.name)
}

// Life of an instance: an engine that dies while starting: failed, with exit
// code, last lines, and a cause.
func TestAStartThatFailsTellsTheCause(t *testing.T) {
	n := newNode(t)
	failing := []struct {
		name  string
		args  []string
		exit  int
		cause string
		log   string
	}{
		{"folder", arguments("/no/such/model", "x"), 1, "model_not_found", "HFValidationError"},
		{"flag", arguments(modelA, "x", "--no-such-flag"), 2, "wrong_flag", "unrecognized arguments: --no-such-flag"},
		{"length", arguments(modelA, "x", "--max-model-len", "100000"), 1, "max_model_len_too_long", "is greater than the derived max_model_len"},
	}
	for _, f := range failing {
		i := n.create(f.name, gpu(0), f.args)
		n.show(f.name, func(t *testing.T) {
			failed := n.await(f.name, "failed")
			n.gone(i)
			require.NotNil(t, failed.ExitCode, failed.Reason)
			assert.Equal(t, f.exit, *failed.ExitCode)
			assert.Equal(t, f.cause, failed.Cause, failed.Reason)
			assert.Contains(t, strings.Join(failed.LastLogLines, "\n"), f.log)
			log, err := n.Log(t.Context(), f.name, 0, -1)
			require.NoError(t, err)
			assert.NotEmpty(t, log)
			n.remove(f.name)
		})
	}
}

// Life of an instance: a stop while starting. vLLM ignores SIGTERM then, for
// more than half a minute.
func TestAStopWhileStartingEndsTheWholeTreeSoon(t *testing.T) {
	n := newNode(t)
	i := n.create("a", gpu(0), arguments(modelA, "tiny-a"))
	n.eventually("vLLM has begun to start its engine", func() bool {
		require.Equal(t, "starting", n.get("a").State)
		return len(tree(i)) > 1
	})
	began := time.Now()
	_, err := n.Delete(t.Context(), "a")
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 20*time.Second, "the start is cancelled, not waited for")
	assert.Empty(t, tree(i))
	_, err = n.Get(t.Context(), "a")
	assert.True(t, client.IsNotFound(err), "%v", err)
}
