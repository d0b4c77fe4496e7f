//go:build vllm

package vllm

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// lifeOfAnyRelease is what holds of every release of vLLM that is tried, in about
// two minutes: TestTheLifeOfAnInstance shows more of the locked one. An instance that has
// outlived its launcher is not the child of the next one, which does not know its exit code.
func lifeOfAnyRelease(method string) []row {
	last := row{name: "it stops with code 0 when it is deleted", id: "a", show: func(l *life, id string) { l.node.stops(l.t, id) }}
	if method == launcherapi.StartExec { // fork_test.go shows it by fork
		last = row{name: "it outlives its launcher", id: "a", show: (*life).outlivesItsLauncher}
	}
	return []row{
		{name: "it answers when it is awake", id: "a", show: (*life).answers},
		{name: "it sleeps at level 1 and wakes, each asked for twice", id: "a", show: sleepsAndWakes(1)},
		{name: "it sleeps at level 2 and wakes, each asked for twice", id: "a", show: sleepsAndWakes(2)},
		{name: "it fails when its API server dies, and nothing of it stays", id: "api", show: dies("", "awake", -9, "killed"), forked: true},
		{name: "a model that is not there is told", id: "folder", show: failsToStart(1, "model_not_found", ""), args: arguments("/no/such/model", "x"), forked: true},
		last, // when no other instance is there, whose exit code the next launcher would not know
	}
}

func (l *life) outlivesItsLauncher(id string) {
	l.kill()
	l.start()
	assert.Equal(l.t, "awake", l.get(id).State)
	l.same(id)
}

// Each row is shown by fork and, where that can differ most, by exec, on a node each.
func TestARelease(t *testing.T) {
	t.Parallel()
	var seen [2]facts
	t.Run("by", func(t *testing.T) {
		for n, method := range []string{launcherapi.StartExec, launcherapi.StartFork} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				seen[n] = showLife(t, method, lifeOfAnyRelease(method))
			})
		}
	})
	assert.Equal(t, seen[0], seen[1], "nobody can tell from outside how an instance was started")
	assert.NotEmpty(t, seen[1].paths)
}

// The first instance after serve, for which nothing is ready yet.
func TestTheFirstStartAfterServeWaitsForThePreloader(t *testing.T) {
	t.Parallel()
	n := newNode(t, auto)
	i, err := n.Create(t.Context(), "a", launcherapi.InstanceSpec{Args: arguments(modelA, "tiny-a")})
	require.NoError(t, err)
	assert.Contains(t, i.Reason, "waiting for the preloader, which began to load at ")
	i = n.await("a", "awake")
	assert.Equal(t, launcherapi.StartFork, i.StartedBy, i.Reason)
	ask(t, i)
	n.remove("a")
}
