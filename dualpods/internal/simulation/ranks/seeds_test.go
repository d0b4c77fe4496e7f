package ranks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// TestNoScheduleBreaksWhatMustHold runs schedules of events and faults; SEEDS says how many, FROM
// from which seed on.
func TestNoScheduleBreaksWhatMustHold(t *testing.T) {
	var served, woken, stopped, recreated atomic.Int64
	schedules.Play(t, schedules.FromEnvironment(t, standard), func(t *testing.T, seed uint64) []string {
		out := simulate(t, seed, drawScript(seed), false)
		served.Add(int64(out.served))
		woken.Add(int64(out.woken))
		stopped.Add(int64(out.stopped))
		recreated.Add(int64(out.recreated))
		return out.wrong
	}, story)
	t.Cleanup(func() {
		t.Logf("servers began to serve %d times, %d of them after a sleep; ranks were stopped %d times; groups were recreated %d times", served.Load(), woken.Load(), stopped.Load(), recreated.Load())
	})
}

// story is a failing schedule, shortened to the events that matter, and what happened.
func story(t *testing.T, seed uint64, wrong []string) string {
	t.Helper()
	return storyOf(t, seed, drawScript(seed), wrong, (*world).setUp)
}

func storyOf(t *testing.T, seed uint64, script []event, wrong []string, setUp func(*world)) string {
	t.Helper()
	breaks := func(less []event) bool {
		return slices.ContainsFunc(simulateIn(t, seed, less, false, setUp).wrong, func(w string) bool { return ruleOf(w) == ruleOf(wrong[0]) })
	}
	if os.Getenv("FIRST") == "" { // else somebody wants to know only whether one fails
		script = schedules.Shorten(script, breaks)
	}
	out := simulateIn(t, seed, script, true, setUp)
	return fmt.Sprintf("seed %d: %s\nof its events %d are enough; what happened:\n%s", seed, strings.Join(wrong, "\n    "), len(script), strings.Join(out.lines, "\n"))
}

func ruleOf(wrong string) string {
	rule, _, _ := strings.Cut(wrong, ":")
	return rule
}

// TestServersSleepAndWakeTogether plays schedules without faults.
func TestServersSleepAndWakeTogether(t *testing.T) {
	script := []event{{at: 20 * time.Second, what: "sleep and wake", arg: 0}, {at: 80 * time.Second, what: "restart requester"}}
	const seeds = 10
	woken := 0
	for seed := range uint64(seeds) {
		out := simulate(t, seed+1, script, false)
		assert.Empty(t, out.wrong, "seed %d", seed+1)
		woken += out.woken
	}
	assert.Greater(t, woken, seeds/4)
}

// TestServersGetOnWhenSwapsAreLost plays schedules in which the launcher of a worker loses its swap while
// the entry loads. The events that the entry has met do not come back.
func TestServersGetOnWhenSwapsAreLost(t *testing.T) {
	const loads = 1 // of the event's states of the entry
	script := []event{{at: time.Millisecond, what: "lose swaps", arg: loads}, {at: 8 * time.Minute, what: "restart requester"}}
	for seed := range uint64(10) {
		out := simulate(t, seed+1, script, false)
		assert.Empty(t, out.wrong, "seed %d", seed+1)
		assert.Positive(t, out.served)
	}
}
