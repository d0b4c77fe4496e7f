package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// victim is a sleeper that another swap is going to evict.
func victim(i Instance) Instance { i.SwapID, i.Victim = "other", true; return i }

// onGPU moves an instance to another GPU.
func onGPU(uuid string, i Instance) Instance {
	i.GPUs = []string{uuid}
	for _, m := range []*map[string]uint64{&i.Expected, &i.Awake, &i.Residue, &i.Now} {
		if bytes, ok := (*m)["g0"]; ok {
			*m = map[string]uint64{uuid: bytes}
		}
	}
	return i
}

// withSecondGPU adds a GPU that holds that much.
func withSecondGPU(w World, used uint64) World {
	w.GPUs["g1"] = GPU{UUID: "g1", TotalBytes: 80 * gib, UsedBytes: used * gib, ProcessesKnown: true}
	return w
}

func TestOnlyABudgetThatASwapMakesWorseRefusesIt(t *testing.T) {
	asleepOn := func(uuid, id string, holds uint64) Instance {
		return pinned(onGPU(uuid, on(id, launcher.Sleeping, 70).holding(holds)))
	}
	a := on("a", launcher.Awake, 70).holding(70)
	for name, c := range map[string]struct {
		there  []Instance
		budget launcherapi.Budget
		want   *Want
		bound  string
	}{
		"too many pinned sleepers of another GPU do not":     {[]Instance{a, asleepOn("g1", "x", 3), asleepOn("g1", "y", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"nor do too many bytes of another GPU's sleepers":    {[]Instance{a, asleepOn("g1", "x", 3)}, launcherapi.Budget{MaxSleeperBytesPerGPU: 2 * gib}, ptr(want("b", 70)), ""},
		"too many of its own do":                             {[]Instance{a, asleepOn("g0", "x", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), BoundMaxSleepersPerGPU},
		"unless as many sleep there afterwards as before":    {[]Instance{withAsleep(a, 3), asleepOn("g0", "x", 3), asleepOn("g0", "b", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"or nobody falls asleep":                             {[]Instance{asleepOn("g0", "x", 3), asleepOn("g0", "y", 3)}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
		"the host's does, since one more holds main memory":  {[]Instance{a, hosting(asleepOn("g1", "x", 3), 9)}, launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}, ptr(want("b", 70)), BoundMaxHostSleeperBytes},
		"who leaves may hold more than who comes has held":   {[]Instance{hosting(withAsleep(a, 1), 9), hosting(asleepOn("g0", "b", 1), 8)}, launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}, ptr(want("b", 70)), BoundMaxHostSleeperBytes},
		"a victim of another swap has left its place behind": {[]Instance{a, victim(onGPU("g0", on("v", launcher.Sleeping, 70).holding(3)))}, launcherapi.Budget{MaxSleepersPerGPU: 1}, ptr(want("b", 70)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			var used [2]uint64
			for _, i := range c.there {
				used[0], used[1] = used[0]+i.Now["g0"]/gib, used[1]+i.Now["g1"]/gib
			}
			w := budget(withSecondGPU(node(used[0], c.there...), used[1]), c.budget)
			_, err := evictions(w, Plan{Room: c.want, Out: []string{"a"}})
			if c.bound == "" {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, c.bound, fitOf(t, err).Bound)
		})
	}
}

func TestAPlaceThatASwapHasClaimedCountsUnderMaxInstances(t *testing.T) {
	claimed := func(there ...Instance) World {
		w := budget(node(0, there...), launcherapi.Budget{MaxInstances: 2})
		w.Reservations = []Want{{SwapID: "other", New: true}}
		return w
	}
	a, c := on("a", launcher.Awake, 1), Want{ID: "c", New: true}
	assert.NoError(t, Admit(claimed(), c))
	fit := fitOf(t, Admit(claimed(a), c))
	assert.Equal(t, BoundMaxInstances, fit.Bound)
	assert.Equal(t, "other", fit.ReservedBy)
	assert.NoError(t, Admit(claimed(a), Want{ID: "b", New: true, SwapID: "other"}), "it is its own")
	assert.NoError(t, Admit(claimed(victim(on("v", launcher.Sleeping, 1))), c), "the new one takes the place of the victim")
	assert.Error(t, Admit(claimed(a, victim(on("v", launcher.Sleeping, 1))), c), "which is taken until the victim is gone")
	assert.Error(t, Admit(claimed(a, victim(on("v", launcher.Stopped, 1))), c), "and after")
}

func TestNobodyIsEvictedForAVictimOfASwap(t *testing.T) {
	w := budget(node(9, victim(on("v", launcher.Sleeping, 70).holding(3).used(3)), on("x", launcher.Sleeping, 70).holding(3).used(2)), launcherapi.Budget{MaxSleepersPerGPU: 1})
	assert.Empty(t, Enforce(w, ""), "the budget holds once the victim is gone")
}
