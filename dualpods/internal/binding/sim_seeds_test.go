package binding

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// number reads a number from the environment.
func envNumber(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	text, ok := os.LookupEnv(name)
	if !ok || text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 63)
	require.NoError(t, err, "%s should be a number", name)
	return n
}

// TestNoScheduleBreaksWhatMustHold runs schedules of events and faults; SEEDS
// says how many, FROM from which seed on.
func TestNoScheduleBreaksWhatMustHold(t *testing.T) {
	from, seeds := envNumber(t, "FROM", 1), envNumber(t, "SEEDS", simStandard)
	var next, failed, served atomic.Uint64
	t.Cleanup(func() {
		t.Logf("%d schedules ran from seed %d on, %d failed; %d requesters were served at their ends", seeds, from, failed.Load(), served.Load())
	})
	var shown sync.Mutex
	kills := simSeeds{all: map[string][]uint64{}}
	lane := func(t *testing.T) {
		t.Parallel()
		for {
			seed := from + next.Add(1) - 1
			if seed >= from+seeds {
				return
			}
			script := drawScript(seed)
			out := simulate(t, seed, script, rules, false)
			served.Add(uint64(out.served))
			kills.add(seed, out.acted)
			if len(out.wrong) == 0 {
				continue
			}
			if failed.Add(1) > 3 {
				t.Errorf("seed %d: %s", seed, out.wrong[0])
				continue
			}
			shown.Lock()
			t.Errorf("%s", story(t, seed, script, out.wrong, ""))
			shown.Unlock()
		}
	}
	t.Run("as drawn", func(t *testing.T) {
		for n := range 4 {
			t.Run(fmt.Sprintf("lane %d", n), lane)
		}
	})
	t.Run("killed after", func(t *testing.T) { kills.killAfterEach(t, seeds) })
}

// story is a failing schedule, shortened to the events that matter, and what
// happened; row is as simulateKilled has it.
func story(t *testing.T, seed uint64, script []simEvent, wrong []string, row string) string {
	for n := len(script) - 1; n >= 0; n-- {
		shorter := slices.Delete(slices.Clone(script), n, n+1)
		if len(shorter) > 0 && slices.ContainsFunc(simulateKilled(t, seed, shorter, rules, false, row).wrong, func(w string) bool { return kindOf(w) == kindOf(wrong[0]) }) {
			script = shorter
		}
	}
	out := simulateKilled(t, seed, script, rules, true, row)
	return fmt.Sprintf("seed %d: %s\nshortened to %d events; what happened:\n%s", seed, strings.Join(wrong, "\n    "), len(script), strings.Join(out.lines, "\n"))
}

// kindOf is what is wrong, without the names.
func kindOf(wrong string) string {
	words := strings.Fields(wrong)
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") }), " ")
}

func TestAnUndisturbedActuationWritesThreeTimes(t *testing.T) {
	for seed := range uint64(40) {
		script := []simEvent{{at: 5e9, what: "create", arg: seed*17*simModels + seed%2}, {at: 9e9, what: "create", arg: seed*31*simModels + 2}}
		out := simulate(t, seed, script, rules, false)
		require.Empty(t, out.wrong)
		require.Len(t, out.writes, 2)
		for uid, n := range out.writes {
			assert.LessOrEqual(t, n, out.allowed[uid], "%s with seed %d", uid, seed)
		}
	}
}

func TestADeletedNodeWhoseMachineGoesOnIsLeftAlone(t *testing.T) {
	script := []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "forget node", arg: 8000}}
	require.Equal(t, 1, simulate(t, 1, script[:1], rules, false).served)
	assert.Empty(t, simulate(t, 1, script, rules, false).wrong)
}

// TestTakingAnyRuleOutIsSeen looks, for each row, for a schedule that
// shows that the row is needed.
func TestTakingAnyRuleOutIsSeen(t *testing.T) {
	if os.Getenv("HOTSEAT_TEST_LONG") == "" {
		t.Skip("NOT TESTED: THIS TAKES MINUTES, AND make test-sim-rules RUNS IT")
	}
	seeds := envNumber(t, "RULE_SEEDS", 1000)
	for n, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			others := slices.Delete(slices.Clone(rules), n, n+1)
			for seed := uint64(1); seed <= seeds; seed++ {
				if out := simulate(t, seed, drawScript(seed), others, false); len(out.wrong) > 0 {
					t.Logf("seed %d: %s", seed, out.wrong[0])
					return
				}
			}
			t.Errorf("%d schedules went well without it", seeds)
		})
	}
}
