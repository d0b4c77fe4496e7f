package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const gib = uint64(1) << 30

// instanceOn returns an instance that expects that many GiB of GPU g0 while awake.
func instanceOn(id string, state launcher.State, expected uint64) Instance {
	return Instance{ID: id, State: state, GPUs: []string{"g0"}, Expected: map[string]uint64{"g0": expected * gib}}
}

func (i Instance) holding(gibs uint64) Instance {
	i.HeldNow = map[string]uint64{"g0": gibs * gib}
	if i.State == launcher.Sleeping {
		i.Residue = i.HeldNow
	} else {
		i.Awake = i.HeldNow
	}
	return i
}

func (i Instance) lastUsed(minutesAgo int) Instance {
	i.LastUsed = time.Unix(1_000_000, 0).Add(-time.Duration(minutesAgo) * time.Minute)
	return i
}

// node returns a World with one GPU of 80 GiB.
func node(used uint64, instances ...Instance) World {
	return World{
		GPUs:      map[string]GPU{"g0": {UUID: "g0", TotalBytes: 80 * gib, UsedBytes: used * gib, ProcessesKnown: true}},
		Instances: instances,
	}
}

func want(id string, gibs uint64) launcher.Room {
	return launcher.Room{ID: id, Bytes: map[string]uint64{"g0": gibs * gib}}
}

func fitOf(t *testing.T, err error) launcherapi.Fit {
	t.Helper()
	e, ok := errors.AsType[*launcher.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, launcherapi.CodeDoesNotFit, e.Code)
	return *e.Fit
}

func TestAdmitComparesWantWithFreeMemory(t *testing.T) {
	for name, c := range map[string]struct {
		world World
		want  launcher.Room
		free  uint64 // GiB; checked if the instance does not fit
		fits  bool
	}{
		"an instance fits on an empty GPU":                            {node(0), want("b", 72), 0, true},
		"an instance larger than the GPU does not fit":                {node(0), want("b", 81), 80, false},
		"two awake instances share a GPU if both fit":                 {node(0, instanceOn("a", launcher.Awake, 32)), want("b", 48), 0, true},
		"an unmeasured awake instance counts with its expected bytes": {node(10, instanceOn("a", launcher.Awake, 72).stillLoading(10)), want("b", 16), 8, false},
		"a measured awake instance counts with its measured bytes":    {node(20, instanceOn("a", launcher.Awake, 72).holding(20)), want("b", 60), 0, true},
		"a starting instance counts like an awake one":                {node(0, instanceOn("a", launcher.Starting, 72)), want("b", 16), 8, false},
		"a waking instance counts like an awake one":                  {node(2, instanceOn("a", launcher.Waking, 72)), want("b", 16), 6, false},
		"an instance falling asleep counts until it sleeps":           {node(72, instanceOn("a", launcher.FallingAsleep, 72).holding(72)), want("b", 16), 8, false},
		"a sleeper counts with its residue":                           {node(2, instanceOn("a", launcher.Sleeping, 72).holding(2)), want("b", 78), 0, true},
		"a sleeper's residue reduces the free memory":                 {node(2, instanceOn("a", launcher.Sleeping, 72).holding(2)), want("b", 79), 78, false},
		"foreign memory counts":                                       {node(30), want("b", 60), 50, false},
		"a failed instance counts until its memory is back":           {node(72, instanceOn("a", launcher.Failed, 72).holding(72)), want("b", 16), 8, false},
		"a released instance does not count":                          {node(0, released(instanceOn("a", launcher.Failed, 72))), want("b", 72), 0, true},
		"a waking sleeper's own residue does not count against it":    {node(2, instanceOn("a", launcher.Sleeping, 72).holding(2)), want("a", 72), 0, true},
		"another swap's reservation counts":                           {withReservation(node(0), "s1", 72), want("b", 16), 8, false},
		"a swap's own reservation does not count against it":          {withReservation(node(0), "s1", 72), launcher.Room{ID: "b", SwapID: "s1", Bytes: map[string]uint64{"g0": 72 * gib}}, 0, true},
		"instances on other GPUs do not matter":                       {node(0, Instance{ID: "a", State: launcher.Awake, GPUs: []string{"g1"}, Expected: map[string]uint64{"g1": 80 * gib}}), want("b", 80), 0, true},
		"charges count where the driver reports no processes":         {processesUnknown(node(72, instanceOn("a", launcher.Awake, 72))), want("b", 8), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := Admit(c.world, c.want)
			if c.fits {
				require.NoError(t, err)
				return
			}
			fit := fitOf(t, err)
			assert.Equal(t, c.free*gib, fit.Available)
			assert.Equal(t, BoundDeviceMemory, fit.Bound)
			assert.Equal(t, "g0", fit.GPUUUID)
		})
	}
}

// stillLoading returns the instance as it holds that many GiB and was never measured
// awake.
func (i Instance) stillLoading(gibs uint64) Instance {
	i.HeldNow = map[string]uint64{"g0": gibs * gib}
	return i
}

func released(i Instance) Instance { i.Released = true; return i }

func withReservation(w World, swapID string, gibs uint64) World {
	w.Reservations = []launcher.Room{{SwapID: swapID, Bytes: map[string]uint64{"g0": gibs * gib}}}
	return w
}

func processesUnknown(w World) World {
	g := w.GPUs["g0"]
	g.ProcessesKnown = false
	w.GPUs["g0"] = g
	return w
}

func withBudget(w World, b launcherapi.Budget) World { w.Budget = b; return w }

func TestRefusalNamesHoldersAndNumbers(t *testing.T) {
	w := node(75, instanceOn("llama", launcher.Awake, 60).holding(60), instanceOn("mistral", launcher.Sleeping, 60).holding(5))
	err := Admit(w, want("qwen", 30))
	fit := fitOf(t, err)
	assert.Equal(t, []launcherapi.GPUHolder{
		{InstanceID: "llama", State: "awake", Bytes: 60 * gib, Measured: true},
		{InstanceID: "mistral", State: "sleeping", Bytes: 5 * gib, Measured: true},
	}, fit.Holders)
	assert.Equal(t, 10*gib, fit.Foreign)
	for _, part := range []string{"qwen", "30.0 GiB", "g0", "5.0 GiB", "80.0 GiB", "llama (awake) holds 60.0 GiB", "mistral (sleeping)", "other processes hold 10.0 GiB"} {
		assert.Contains(t, err.Error(), part)
	}
}

func TestMaxInstancesCountsOnlyLiveInstances(t *testing.T) {
	w := withBudget(node(0, instanceOn("a", launcher.Sleeping, 1), instanceOn("b", launcher.Stopped, 1), instanceOn("c", launcher.Failed, 1)), launcherapi.Budget{MaxInstances: 2})
	assert.NoError(t, Admit(w, launcher.Room{ID: "d", New: true}))
	w.Instances = append(w.Instances, instanceOn("d", launcher.Awake, 1))
	fit := fitOf(t, Admit(w, launcher.Room{ID: "e", New: true}))
	assert.Equal(t, BoundMaxInstances, fit.Bound)
	assert.EqualValues(t, 2, fit.Limit)
	assert.NoError(t, Admit(w, launcher.Room{ID: "a"}), "an instance that exists needs no new place")
}

func TestEvictions(t *testing.T) {
	two := launcherapi.Budget{MaxSleepersPerGPU: 2}
	for name, c := range map[string]struct {
		world World
		swap  launcher.Plan
		evict []string
		bound string
	}{
		"a leaving instance makes room": {
			world: node(72, instanceOn("a", launcher.Awake, 72).holding(72)),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
		},
		"an instance larger than the GPU never fits": {
			world: node(72, instanceOn("a", launcher.Awake, 72).holding(72)),
			swap:  launcher.Plan{Room: ptr(want("b", 81)), Out: []string{"a"}},
			bound: BoundDeviceMemory,
		},
		"the known residue of a leaving instance counts": {
			world: node(72, withResidue(instanceOn("a", launcher.Awake, 72).holding(72), 10)),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
			bound: BoundDeviceMemory,
		},
		"the residue counts even if the leaving instance is stopped afterwards": {
			world: node(72, withResidue(instanceOn("a", launcher.Awake, 72).holding(72), 10)),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}, Stop: true},
			bound: BoundDeviceMemory,
		},
		"the least recently used sleeper goes first": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70).lastUsed(0), instanceOn("old", launcher.Sleeping, 70).holding(3).lastUsed(9), instanceOn("new", launcher.Sleeping, 70).holding(3).lastUsed(1)), two),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"old"},
		},
		"a pinned sleeper never goes": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70).lastUsed(0), pinned(instanceOn("old", launcher.Sleeping, 70).holding(3).lastUsed(9)), instanceOn("new", launcher.Sleeping, 70).holding(3).lastUsed(1)), two),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"new"},
		},
		"the budget refuses if all other sleepers are pinned": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70), pinned(instanceOn("x", launcher.Sleeping, 70).holding(3)), pinned(instanceOn("y", launcher.Sleeping, 70).holding(3))), two),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			bound: BoundMaxSleepersPerGPU,
		},
		"the incoming instance is no sleeper and is not evicted": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("b", launcher.Sleeping, 70).holding(3).lastUsed(9), instanceOn("c", launcher.Sleeping, 70).holding(3)), two),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
		},
		"a leaving instance to be stopped does not count as a sleeper": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("x", launcher.Sleeping, 70).holding(3), instanceOn("y", launcher.Sleeping, 70).holding(3)), two),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}, Stop: true},
		},
		"sleepers are evicted to free their residues": {
			world: node(80, withResidue(instanceOn("a", launcher.Awake, 70).holding(70), 1), instanceOn("x", launcher.Sleeping, 70).holding(5).lastUsed(2), instanceOn("y", launcher.Sleeping, 70).holding(5).lastUsed(1)),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
			evict: []string{"x"},
		},
		"one that has never slept is taken to hold as much as another": {
			world: node(76, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("x", launcher.Sleeping, 70).holding(3).lastUsed(2), instanceOn("y", launcher.Sleeping, 70).holding(3).lastUsed(1)),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
			evict: []string{"x"},
		},
		"it may hold less where nothing else makes room": {
			world: node(75, instanceOn("a", launcher.Awake, 70).holding(70), pinned(instanceOn("x", launcher.Sleeping, 70).holding(5))),
			swap:  launcher.Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
		},
		"max_instances makes room by evicting a sleeper": {
			world: withBudget(node(70, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("x", launcher.Sleeping, 70).lastUsed(3)), launcherapi.Budget{MaxInstances: 2}),
			swap:  launcher.Plan{Room: &launcher.Room{ID: "b", New: true, Bytes: map[string]uint64{"g0": 70 * gib}}, Out: []string{"a"}},
			evict: []string{"x"},
		},
		"max_sleeper_bytes_per_gpu evicts a sleeper": {
			world: withBudget(node(73, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("x", launcher.Sleeping, 70).holding(3)), launcherapi.Budget{MaxSleeperBytesPerGPU: 2 * gib}),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"x"},
		},
		"max_host_sleeper_bytes evicts a sleeper": {
			world: withBudget(node(70, instanceOn("a", launcher.Awake, 70).holding(70), withHostBytes(instanceOn("x", launcher.Sleeping, 1), 9).lastUsed(5), instanceOn("y", launcher.Sleeping, 1).lastUsed(9)), launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}),
			swap:  launcher.Plan{Out: []string{"a"}},
			evict: []string{"x"},
		},
		"a sleeper that another swap has claimed is not evicted": {
			world: withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70), claimedByOther(instanceOn("x", launcher.Sleeping, 70).holding(3)), instanceOn("y", launcher.Sleeping, 70).holding(3)), launcherapi.Budget{MaxSleepersPerGPU: 1}),
			swap:  launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			bound: BoundMaxSleepersPerGPU,
		},
	} {
		t.Run(name, func(t *testing.T) {
			evict, err := evictions(c.world, c.swap)
			if c.bound != "" {
				assert.Equal(t, c.bound, fitOf(t, err).Bound)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.evict, evict)
		})
	}
}

func TestSwapFitsWhereTheDriverReportsNoProcesses(t *testing.T) {
	w := node(74, instanceOn("a", launcher.Awake, 74))
	w.GPUs["g0"] = GPU{UUID: "g0", TotalBytes: 80 * gib, UsedBytes: 74 * gib}
	b := want("b", 74)
	b.New = true
	evict, err := evictions(w, launcher.Plan{Room: &b, Out: []string{"a"}})
	require.NoError(t, err)
	assert.Empty(t, evict)
	_, err = evictions(w, launcher.Plan{Room: &b})
	assert.EqualValues(t, 6*gib, fitOf(t, err).Available, "unless the one that holds it stays")
}

func TestEnforceEvictsUntilTheBudgetsHold(t *testing.T) {
	w := withBudget(node(9, instanceOn("a", launcher.Sleeping, 70).holding(3).lastUsed(3), instanceOn("b", launcher.Sleeping, 70).holding(3).lastUsed(2), instanceOn("c", launcher.Sleeping, 70).holding(3).lastUsed(1)),
		launcherapi.Budget{MaxSleepersPerGPU: 1})
	assert.Equal(t, []string{"b", "c"}, Enforce(w, "a"), "a has just fallen asleep")
	assert.Equal(t, []string{"a", "b"}, Enforce(w, ""))
	assert.Empty(t, Enforce(node(9, w.Instances...), ""), "without a budget nobody goes")
}

func TestDecisionLeavesTheWorldUnchanged(t *testing.T) {
	w := withBudget(node(76, instanceOn("a", launcher.Awake, 70).holding(70), instanceOn("x", launcher.Sleeping, 70).holding(6)), launcherapi.Budget{MaxSleepersPerGPU: 1})
	before := w.GPUs["g0"].UsedBytes
	_, err := evictions(w, launcher.Plan{Room: ptr(want("b", 70)), Out: []string{"a"}})
	require.NoError(t, err)
	assert.Equal(t, before, w.GPUs["g0"].UsedBytes)
	assert.Equal(t, launcher.Awake, w.Instances[0].State)
}

func ptr(w launcher.Room) *launcher.Room { return &w }

func pinned(i Instance) Instance { i.Pinned = true; return i }

func claimedByOther(i Instance) Instance { i.SwapID = "other"; return i }

func withHostBytes(i Instance, gibs uint64) Instance { i.HostBytes = gibs * gib; return i }

func withResidue(i Instance, gibs uint64) Instance {
	i.Residue = map[string]uint64{"g0": gibs * gib}
	return i
}

func TestMemoryOnAnUnassignedGPUIsChargedByName(t *testing.T) {
	w := node(70, Instance{ID: "stray", State: launcher.Awake, HeldNow: map[string]uint64{"g0": 70 * gib}})
	assert.Zero(t, w.Foreign("g0"))
	fit := fitOf(t, Admit(w, want("b", 30)))
	assert.Zero(t, fit.Foreign)
	require.Len(t, fit.Holders, 1)
	assert.Equal(t, 70*gib, fit.Holders[0].Bytes)
	assert.Equal(t, 10*gib, fit.Available)
}

func TestEndingSleeperCountsWithItsResidue(t *testing.T) {
	for _, state := range []launcher.State{launcher.Stopping, launcher.Stopped, launcher.Failed} {
		ending := instanceOn("a", launcher.Sleeping, 60).holding(5)
		ending.Awake, ending.State = map[string]uint64{"g0": 60 * gib}, state
		assert.Error(t, Admit(node(5, ending), want("b", 70)), "one that was awake may hold as much again: %s", state)
		ending.AsleepBeforeEnd = true
		assert.NoError(t, Admit(node(5, ending), want("b", 70)), state)
		assert.Error(t, Admit(node(5, ending), want("b", 76)), state)
	}
}

func TestUnmeasuredSleeperIsChargedAsIfAwake(t *testing.T) {
	unmeasured := withResidue(instanceOn("a", launcher.Sleeping, 70), 2)
	unmeasured.Unmeasured = true
	fit := fitOf(t, Admit(node(0, unmeasured), want("b", 30)))
	assert.Equal(t, []launcherapi.GPUHolder{{InstanceID: "a", State: "sleeping", Bytes: 70 * gib}}, fit.Holders)

	budget := launcherapi.Budget{MaxSleeperBytesPerGPU: 10 * gib}
	other := instanceOn("b", launcher.Sleeping, 70).holding(2)
	assert.Empty(t, Enforce(withBudget(node(0, unmeasured, other), budget), "a"), "no other sleeper goes on a suspicion")

	unmeasured.HeldNow = map[string]uint64{"g0": 40 * gib}
	require.NoError(t, Admit(node(40, unmeasured), want("b", 30)), "what is measured counts")
}
