package binding

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// TestNoScheduleBreaksWhatMustHold runs schedules of events and faults; SEEDS
// says how many, FROM from which seed on.
func TestNoScheduleBreaksWhatMustHold(t *testing.T) {
	r := schedules.FromEnvironment(t, simStandard)
	var served atomic.Uint64
	kills := seedsOfRows(simKilled)
	t.Run("as drawn", func(t *testing.T) {
		schedules.Play(t, r, func(t *testing.T, seed uint64) []string {
			out := simulate(t, seed, drawScript(seed), decide.Tables, false)
			served.Add(uint64(out.served))
			kills.add(seed, out.acted)
			return out.wrong
		}, func(t *testing.T, seed uint64, wrong []string) string {
			return story(t, seed, drawScript(seed), wrong, "")
		})
	})
	t.Logf("%d requesters were served at the ends of the schedules", served.Load())
	if simKilled > 0 {
		t.Run("killed after", func(t *testing.T) { kills.killAfterEach(t, r.Seeds) })
	}
}

// story is a failing schedule, shortened to the events that matter, and what
// happened; row is as simulateKilled has it.
func story(t *testing.T, seed uint64, script []simEvent, wrong []string, row string) string {
	script = schedules.Shorten(script, func(less []simEvent) bool {
		return slices.ContainsFunc(simulateKilled(t, seed, less, decide.Tables, false, row).wrong, func(w string) bool { return kindOf(w) == kindOf(wrong[0]) })
	})
	out := simulateKilled(t, seed, script, decide.Tables, true, row)
	return fmt.Sprintf("seed %d: %s\nshortened to %d events; what happened:\n%s", seed, strings.Join(wrong, "\n    "), len(script), strings.Join(out.lines, "\n"))
}

// kindOf is what is wrong, without the names.
func kindOf(wrong string) string {
	words := strings.Fields(wrong)
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.ContainsAny(w, "0123456789") }), " ")
}

func TestUndisturbedActuationWritesNoMoreThanItNeeds(t *testing.T) {
	for seed := range uint64(simComposed) {
		script := []simEvent{{at: 5e9, what: "create", arg: seed*17*simModels + seed%2}, {at: 9e9, what: "create", arg: seed*31*simModels + 2}}
		out := simulate(t, seed, script, decide.Tables, false)
		require.Empty(t, out.wrong)
		require.Len(t, out.writes, 2)
		for uid, n := range out.writes {
			assert.LessOrEqual(t, n, out.allowed[uid], "%s with seed %d", uid, seed)
		}
	}
}

func TestADeletedNodeWhoseMachineGoesOnIsLeftAlone(t *testing.T) {
	script := []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "forget node", arg: 8000}}
	require.Equal(t, 1, simulate(t, 1, script[:1], decide.Tables, false).served)
	assert.Empty(t, simulate(t, 1, script, decide.Tables, false).wrong)
}

// mostPerRow is how many schedules without a row are played that came by the row
// when they had it.
const mostPerRow = 400

// composed are schedules for the rows that next to none of those that are drawn
// comes by, or needs: each takes several things that meet within milliseconds.
var composed = map[string][]simEvent{
	"neighbour not heard": wokenUnheard,
	"earlier swap under way": { // in another launcher, to which neither the swap nor its calling off has come
		{at: 2 * time.Second, what: "slow call", arg: 4000},
		{at: 2 * time.Second, what: "slow order", arg: 8000},
		{at: 3 * time.Second, what: "create on demand"},
		{at: 5 * time.Second, what: "force"},
		{at: 6 * time.Second, what: "create"},
	},
	"not awake, not held": {
		{at: 3 * time.Second, what: "create"},
		{at: 14 * time.Second, what: oddStays},
		{at: 15 * time.Second, what: "sleep by hand"},
		{at: 16 * time.Second, what: "reinstall"},
	},
	"launcher gone, stays ready": {
		{at: 3 * time.Second, what: "create"},
		{at: 14 * time.Second, what: oddUnready},
		{at: 15 * time.Second, what: "evict launcher"},
	},
	"model missing": { // for long, and until all is mended
		{at: time.Second, what: "model goes", arg: 2 << 3},
		{at: 3 * time.Second, what: "create", arg: 2},
	},
	"models just lost": {
		{at: time.Second, what: "models unheard", arg: 2},
		{at: 3 * time.Second, what: "create on demand"},
		{at: 3500 * time.Millisecond, what: "create on demand"},
	},
	"told to rest": { // over a connection that hangs
		{at: 3 * time.Second, what: "create", arg: 3},
		{at: 20 * time.Second, what: "delete"},
		{at: 29 * time.Second, what: "slow order", arg: 8000},
		{at: 30 * time.Second, what: "wake by hand"},
		{at: 31 * time.Second, what: "create", arg: 3},
	},
}

// seedsOfComposed are those that composed schedules are played with.
var seedsOfComposed = slices.Collect(func(yield func(uint64) bool) {
	for seed := uint64(0); seed < simComposed && yield(seed); seed++ {
	}
})

func TestNoComposedScheduleBreaksWhatMustHold(t *testing.T) {
	for row, script := range composed {
		t.Run(row, func(t *testing.T) {
			came := 0
			for _, seed := range seedsOfComposed {
				out := simulate(t, seed, script, decide.Tables, false)
				assert.Empty(t, out.wrong, "seed %d", seed)
				if out.decided[row] {
					came++
				}
			}
			assert.Positive(t, came)
		})
	}
}

// TestTakingAnyRuleOutIsSeen looks, for each row, for a schedule that
// shows that the row is needed: only one that comes by the row can. The last row of a table that
// does nothing changes no schedule: without it, no row of the table holds, and nothing is done.
func TestTakingAnyRuleOutIsSeen(t *testing.T) {
	if os.Getenv("HOTSEAT_TEST_LONG") == "" {
		t.Skip("NOT TESTED: THIS TAKES MINUTES, AND make test-sim-rules RUNS IT")
	}
	r := schedules.Range{From: 1, Seeds: schedules.Number(t, "RULE_SEEDS", 5000)}
	came := seedsOfRows(mostPerRow)
	t.Run("all of them", func(t *testing.T) {
		schedules.Play(t, r, func(t *testing.T, seed uint64) []string {
			out := simulate(t, seed, drawScript(seed), decide.Tables, false)
			came.add(seed, out.decided)
			return out.wrong
		}, func(t *testing.T, seed uint64, wrong []string) string {
			return story(t, seed, drawScript(seed), wrong, "")
		})
	})
	for _, r := range decide.Rows(decide.Tables) {
		if r.Do == decide.Nothing && r.Words == "in all other cases" {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			others := decide.Without(decide.Tables, r.Name)
			if script := composed[r.Name]; script != nil {
				require.True(t, slices.ContainsFunc(seedsOfComposed, func(seed uint64) bool {
					return len(simulate(t, seed, script, others, false).wrong) > 0
				}), "the schedules that were composed for it went well without it")
				return
			}
			for tried, seed := range came.all[r.Name] {
				if out := simulate(t, seed, drawScript(seed), others, false); len(out.wrong) > 0 {
					t.Logf("seed %d, the %d. that comes by it: %s", seed, tried+1, out.wrong[0])
					return
				}
			}
			t.Errorf("%d schedules came by it, and went well without it", len(came.all[r.Name]))
		})
	}
}
