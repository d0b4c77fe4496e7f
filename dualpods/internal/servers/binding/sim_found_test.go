package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// found are schedules like drawn ones that broke what must hold.
var found = map[string][]simEvent{
	"a program names the GPU of another, which hangs, and whose record is damaged": {
		{at: 3 * time.Second, what: "create", arg: 8},
		{at: 20 * time.Second, what: "odd programs"}, // the next one lies
		{at: 21 * time.Second, what: "hang program"},
		{at: 21100 * time.Millisecond, what: "damage record", arg: 8999},
		{at: 21200 * time.Millisecond, what: "delete"},
		{at: 21300 * time.Millisecond, what: "create", arg: 8},
	},
	"of two launchers the older one has ended, and the other does not answer": {
		{at: time.Second, what: "create on demand", arg: 8},
		{at: 14 * time.Second, what: "silence launcher", arg: 4}, // for good
		{at: 15 * time.Second, what: "end launcher", arg: 12},
		{at: 16 * time.Second, what: "create anywhere", arg: 1024},
	},
	"a program names other GPUs and never unbinds, and its launcher is deleted": {
		{at: 3 * time.Second, what: "create"},
		{at: 14 * time.Second, what: oddStays},
		{at: 15 * time.Second, what: "lie", arg: 16}, // it cannot tell its GPUs
		{at: 17 * time.Second, what: "lie", arg: 32}, // it names one of nobody
		{at: 19 * time.Second, what: "delete launcher"},
	},
	"a program that never unbinds names other GPUs, and its status does not say yet that it serves": {
		{at: 3 * time.Second, what: "create", arg: 8},
		{at: 3500 * time.Millisecond, what: "lie", arg: 16}, // it cannot tell its GPUs
		{at: 4 * time.Second, what: "API down", arg: 8000},
		{at: 5 * time.Second, what: oddStays},
		{at: 10 * time.Second, what: "lie", arg: 32}, // it names one of nobody
	},
	"a model is put to sleep by hand, and the controller is killed before it wakes": {
		{at: 3 * time.Second, what: "create"},
		{at: 20 * time.Second, what: "sleep by hand"},
		{at: 21 * time.Second, what: "kill controller", arg: 4},
	},
}

func TestNoScheduleThatWasFoundBreaksWhatMustHold(t *testing.T) {
	for what, script := range found {
		t.Run(what, func(t *testing.T) {
			for _, seed := range seedsOfComposed {
				assert.Empty(t, simulate(t, seed, script, decide.Tables, false).wrong, "seed %d", seed)
			}
		})
	}
}

func TestModelThatWasPutToSleepByHandIsServedAgainWithoutUnbinding(t *testing.T) {
	script := []simEvent{{at: 3 * time.Second, what: "create"}, {at: 20 * time.Second, what: "sleep by hand"}}
	for _, seed := range seedsOfComposed {
		out := simulate(t, seed, script, decide.Tables, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
		assert.True(t, out.decided["not awake any more"], "seed %d", seed)
		assert.False(t, out.acted["carries for another"], "seed %d", seed)
		assert.Equal(t, 1, out.served, "seed %d", seed)
	}
}

// loseLabels is an event that no script draws: the labels of all requesters are lost, and no
// controller hears of it.
const loseLabels = "lose labels"

func (s *sim) loseLabels() {
	for _, name := range s.requesters() {
		lost := s.api.pods[name].DeepCopy()
		lost.Labels = nil
		s.api.pods[name] = lost
	}
}

func TestServedRequesterWithoutItsLabelsIsFound(t *testing.T) {
	script := []simEvent{{at: 3 * time.Second, what: "create", arg: 8}, {at: 20 * time.Second, what: loseLabels}}
	for _, seed := range seedsOfComposed {
		wrong := simulate(t, seed, script, decide.Tables, false).wrong
		require.NotEmpty(t, wrong, "seed %d", seed)
		assert.Contains(t, wrong[0], "is served, and its status and labels do not say so", "seed %d", seed)
	}
}
