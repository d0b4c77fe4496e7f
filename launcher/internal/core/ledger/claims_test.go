package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// asVictim marks an instance as the victim of another swap.
func asVictim(i Instance) Instance { i.SwapID, i.Victim = "other", true; return i }

// onGPU moves an instance to another GPU.
func onGPU(uuid string, i Instance) Instance {
	i.GPUs = []string{uuid}
	for _, m := range []*map[string]uint64{&i.Expected, &i.Awake, &i.Residue, &i.HeldNow} {
		if bytes, ok := (*m)["g0"]; ok {
			*m = map[string]uint64{uuid: bytes}
		}
	}
	return i
}

// withSecondGPU adds a GPU of which that many GiB are used.
func withSecondGPU(w World, used uint64) World {
	w.GPUs["g1"] = GPU{UUID: "g1", TotalBytes: 80 * gib, UsedBytes: used * gib, ProcessesKnown: true}
	return w
}

func TestSwapIsRefusedOnlyByBudgetsItMakesWorse(t *testing.T) {
	asleepOn := func(uuid, id string, holds uint64) Instance {
		return pinned(onGPU(uuid, instanceOn(id, launcher.Sleeping, 70).holding(holds)))
	}
	a := instanceOn("a", launcher.Awake, 70).holding(70)
	for name, c := range map[string]struct {
		there  []Instance
		budget launcherapi.Budget
		want   *launcher.Room
		bound  string
	}{
		"too many pinned sleepers on another GPU do not refuse":    {[]Instance{a, asleepOn("g1", "x", 3), asleepOn("g1", "y", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"too many sleeper bytes on another GPU do not refuse":      {[]Instance{a, asleepOn("g1", "x", 3)}, launcherapi.Budget{MaxSleeperBytesPerGPU: 2 * gib}, ptr(want("b", 70)), ""},
		"too many sleepers on the swap's GPU refuse":               {[]Instance{a, asleepOn("g0", "x", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), BoundMaxSleepersPerGPU},
		"an unchanged number of sleepers does not refuse":          {[]Instance{withResidue(a, 3), asleepOn("g0", "x", 3), asleepOn("g0", "b", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"a swap that puts nobody to sleep is not refused":          {[]Instance{asleepOn("g0", "x", 3), asleepOn("g0", "y", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"one more sleeper in full main memory refuses":             {[]Instance{a, withHostBytes(asleepOn("g1", "x", 3), 9)}, launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}, ptr(want("b", 70)), BoundMaxHostSleeperBytes},
		"main memory refuses if the leaving sleeper may hold more": {[]Instance{withHostBytes(withResidue(a, 1), 9), withHostBytes(asleepOn("g0", "b", 1), 8)}, launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}, ptr(want("b", 70)), BoundMaxHostSleeperBytes},
		"a victim of another swap does not count as a sleeper":     {[]Instance{a, asVictim(onGPU("g0", instanceOn("v", launcher.Sleeping, 70).holding(3)))}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var used [2]uint64
			for _, i := range c.there {
				used[0], used[1] = used[0]+i.HeldNow["g0"]/gib, used[1]+i.HeldNow["g1"]/gib
			}
			w := withBudget(withSecondGPU(node(used[0], c.there...), used[1]), c.budget)
			_, err := evictions(w, launcher.Plan{Room: c.want, Out: []string{"a"}})
			if c.bound == "" {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, c.bound, fitOf(t, err).Bound)
		})
	}
}

func TestClaimedPlaceCountsUnderMaxInstances(t *testing.T) {
	claimed := func(there ...Instance) World {
		w := withBudget(node(0, there...), launcherapi.Budget{MaxInstances: 2})
		w.Reservations = []launcher.Room{{SwapID: "other", New: true}}
		return w
	}
	a, c := instanceOn("a", launcher.Awake, 1), launcher.Room{ID: "c", New: true}
	assert.NoError(t, Admit(claimed(), c))
	fit := fitOf(t, Admit(claimed(a), c))
	assert.Equal(t, BoundMaxInstances, fit.Bound)
	assert.Equal(t, "other", fit.ReservedBy)
	assert.NoError(t, Admit(claimed(a), launcher.Room{ID: "b", New: true, SwapID: "other"}), "it is its own")
	assert.NoError(t, Admit(claimed(asVictim(instanceOn("v", launcher.Sleeping, 1))), c), "the new one takes the place of the victim")
	assert.Error(t, Admit(claimed(a, asVictim(instanceOn("v", launcher.Sleeping, 1))), c), "which is taken until the victim is gone")
	assert.Error(t, Admit(claimed(a, asVictim(instanceOn("v", launcher.Stopped, 1))), c), "and after")
}

func TestVictimOfASwapCausesNoFurtherEviction(t *testing.T) {
	w := withBudget(node(9, asVictim(instanceOn("v", launcher.Sleeping, 70).holding(3).lastUsed(3)), instanceOn("x", launcher.Sleeping, 70).holding(3).lastUsed(2)), launcherapi.Budget{MaxSleepersPerGPU: 1})
	assert.Empty(t, Enforce(w, ""), "the budget holds once the victim is gone")
}
