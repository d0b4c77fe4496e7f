package simulation

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// TestNoScheduleBreaksWhatMustHold runs schedules of events and faults; SEEDS says how
// many, FROM from which seed on.
func TestNoScheduleBreaksWhatMustHold(t *testing.T) {
	var whole, passes atomic.Int64
	schedules.Play(t, schedules.FromEnvironment(t, standard), func(t *testing.T, seed uint64) []string {
		out := simulate(t, seed, drawScript(seed), false)
		whole.Add(int64(out.whole))
		passes.Add(int64(out.passes))
		return out.wrong
	}, story)
	t.Cleanup(func() { t.Logf("%d nodes had their models at the ends of the schedules", whole.Load()) })
}

// story is a failing schedule, shortened to the events that matter, and what happened.
func story(t *testing.T, seed uint64, wrong []string) string {
	t.Helper()
	script := drawScript(seed)
	breaks := func(less []event) bool {
		return slices.ContainsFunc(simulate(t, seed, less, false).wrong, func(w string) bool { return ruleOf(w) == ruleOf(wrong[0]) })
	}
	if os.Getenv("FIRST") == "" { // else somebody wants to know only whether one fails
		script = schedules.Shorten(script, breaks)
	}
	out := simulate(t, seed, script, true)
	return fmt.Sprintf("seed %d: %s\nof its events %d are enough; what happened:\n%s", seed, strings.Join(wrong, "\n    "), len(script), strings.Join(out.lines, "\n"))
}

func ruleOf(wrong string) string {
	rule, _, _ := strings.Cut(wrong, ":")
	return rule
}

func TestWhatIsSimulatedComesToSomething(t *testing.T) {
	script := []event{{at: 5e9, what: "make cache"}, {at: 9e9, what: "make requester"}}
	whole := 0
	const seeds = min(20, standard)
	for seed := range uint64(seeds) {
		out := simulate(t, seed+1, script, false)
		assert.Empty(t, out.wrong, "seed %d", seed+1)
		whole += out.whole
	}
	assert.Greater(t, whole, seeds)
}
