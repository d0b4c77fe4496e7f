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

// on makes an instance that expects that many GiB of GPU g0 while awake.
func on(id string, state launcher.State, expected uint64) Instance {
	return Instance{ID: id, State: state, GPUs: []string{"g0"}, Expected: map[string]uint64{"g0": expected * gib}}
}

func (i Instance) holding(gibs uint64) Instance {
	i.Now = map[string]uint64{"g0": gibs * gib}
	if i.State == launcher.Sleeping {
		i.Residue = i.Now
	} else {
		i.Awake = i.Now
	}
	return i
}

func (i Instance) used(minutesAgo int) Instance {
	i.LastUsed = time.Unix(1_000_000, 0).Add(-time.Duration(minutesAgo) * time.Minute)
	return i
}

// node is a world with one GPU of 80 GiB.
func node(used uint64, instances ...Instance) World {
	return World{
		GPUs:      map[string]GPU{"g0": {UUID: "g0", TotalBytes: 80 * gib, UsedBytes: used * gib, ProcessesKnown: true}},
		Instances: instances,
	}
}

func want(id string, gibs uint64) Want {
	return Want{ID: id, Bytes: map[string]uint64{"g0": gibs * gib}}
}

func fitOf(t *testing.T, err error) launcherapi.Fit {
	t.Helper()
	e, ok := errors.AsType[*launcher.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, launcherapi.CodeDoesNotFit, e.Code)
	return *e.Fit
}

func TestAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		world World
		want  Want
		free  uint64 // GiB, where it does not fit
		fits  bool
	}{
		"an empty GPU takes what fits in it":                        {node(0), want("b", 72), 0, true},
		"nothing fits that is larger than the GPU":                  {node(0), want("b", 81), 80, false},
		"two awake ones share a GPU where both fit":                 {node(0, on("a", launcher.Awake, 32)), want("b", 48), 0, true},
		"an awake one is counted with what it expects at first":     {node(10, on("a", launcher.Awake, 72).halfThere(10)), want("b", 16), 8, false},
		"an awake one is counted with what was measured":            {node(20, on("a", launcher.Awake, 72).holding(20)), want("b", 60), 0, true},
		"a starting one counts as if it were awake":                 {node(0, on("a", launcher.Starting, 72)), want("b", 16), 8, false},
		"a waking one counts as if it were awake":                   {node(2, on("a", launcher.Waking, 72)), want("b", 16), 6, false},
		"one that falls asleep counts until it sleeps":              {node(72, on("a", launcher.FallingAsleep, 72).holding(72)), want("b", 16), 8, false},
		"a sleeper counts with its residue":                         {node(2, on("a", launcher.Sleeping, 72).holding(2)), want("b", 78), 0, true},
		"a sleeper's residue can be in the way":                     {node(2, on("a", launcher.Sleeping, 72).holding(2)), want("b", 79), 78, false},
		"strangers count":                                           {node(30), want("b", 60), 50, false},
		"one that failed counts until its memory is back":           {node(72, on("a", launcher.Failed, 72).holding(72)), want("b", 16), 8, false},
		"one that is released counts no more":                       {node(0, released(on("a", launcher.Failed, 72))), want("b", 72), 0, true},
		"a sleeper that wakes does not stand in its own way":        {node(2, on("a", launcher.Sleeping, 72).holding(2)), want("a", 72), 0, true},
		"a reservation of another swap is in the way":               {reserved(node(0), "s1", 72), want("b", 16), 8, false},
		"a swap's own reservation is not":                           {reserved(node(0), "s1", 72), Want{ID: "b", SwapID: "s1", Bytes: map[string]uint64{"g0": 72 * gib}}, 0, true},
		"instances on other GPUs do not matter":                     {node(0, Instance{ID: "a", State: launcher.Awake, GPUs: []string{"g1"}, Expected: map[string]uint64{"g1": 80 * gib}}), want("b", 80), 0, true},
		"where the driver names no processes, charges are believed": {unknown(node(72, on("a", launcher.Awake, 72))), want("b", 8), 0, true},
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

// halfThere holds that much now and was never measured awake.
func (i Instance) halfThere(gibs uint64) Instance {
	i.Now = map[string]uint64{"g0": gibs * gib}
	return i
}

func released(i Instance) Instance { i.Released = true; return i }

func reserved(w World, swapID string, gibs uint64) World {
	w.Reservations = []Want{{SwapID: swapID, Bytes: map[string]uint64{"g0": gibs * gib}}}
	return w
}

func unknown(w World) World {
	g := w.GPUs["g0"]
	g.ProcessesKnown = false
	w.GPUs["g0"] = g
	return w
}

func budget(w World, b launcherapi.Budget) World { w.Budget = b; return w }

func TestARefusalNamesTheHolderAndTheNumbers(t *testing.T) {
	w := node(75, on("llama", launcher.Awake, 60).holding(60), on("mistral", launcher.Sleeping, 60).holding(5))
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

func TestMaxInstancesCountsOnlyWhatLives(t *testing.T) {
	w := budget(node(0, on("a", launcher.Sleeping, 1), on("b", launcher.Stopped, 1), on("c", launcher.Failed, 1)), launcherapi.Budget{MaxInstances: 2})
	assert.NoError(t, Admit(w, Want{ID: "d", New: true}))
	w.Instances = append(w.Instances, on("d", launcher.Awake, 1))
	fit := fitOf(t, Admit(w, Want{ID: "e", New: true}))
	assert.Equal(t, BoundMaxInstances, fit.Bound)
	assert.EqualValues(t, 2, fit.Limit)
	assert.NoError(t, Admit(w, Want{ID: "a"}), "an instance that exists needs no new place")
}

func TestEvictions(t *testing.T) {
	two := launcherapi.Budget{MaxSleepersPerGPU: 2}
	for name, c := range map[string]struct {
		world World
		swap  Plan
		evict []string
		bound string
	}{
		"who leaves makes room": {
			world: node(72, on("a", launcher.Awake, 72).holding(72)),
			swap:  Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
		},
		"one larger than the GPU does not fit, whoever leaves": {
			world: node(72, on("a", launcher.Awake, 72).holding(72)),
			swap:  Plan{Room: ptr(want("b", 81)), Out: []string{"a"}},
			bound: BoundDeviceMemory,
		},
		"the known residue of who leaves is counted": {
			world: node(72, withAsleep(on("a", launcher.Awake, 72).holding(72), 10)),
			swap:  Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
			bound: BoundDeviceMemory,
		},
		"it is in the way also of a swap that ends who leaves, since that sleeps first": {
			world: node(72, withAsleep(on("a", launcher.Awake, 72).holding(72), 10)),
			swap:  Plan{Room: ptr(want("b", 72)), Out: []string{"a"}, Stop: true},
			bound: BoundDeviceMemory,
		},
		"the least recently used sleeper goes first": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70).used(0), on("old", launcher.Sleeping, 70).holding(3).used(9), on("new", launcher.Sleeping, 70).holding(3).used(1)), two),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"old"},
		},
		"a pinned sleeper never goes": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70).used(0), pinned(on("old", launcher.Sleeping, 70).holding(3).used(9)), on("new", launcher.Sleeping, 70).holding(3).used(1)), two),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"new"},
		},
		"when only pinned ones are left the budget refuses": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70), pinned(on("x", launcher.Sleeping, 70).holding(3)), pinned(on("y", launcher.Sleeping, 70).holding(3))), two),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			bound: BoundMaxSleepersPerGPU,
		},
		"who comes in does not count as a sleeper, nor is it evicted": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70), on("b", launcher.Sleeping, 70).holding(3).used(9), on("c", launcher.Sleeping, 70).holding(3)), two),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
		},
		"who leaves to end does not count as a sleeper": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70), on("x", launcher.Sleeping, 70).holding(3), on("y", launcher.Sleeping, 70).holding(3)), two),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}, Stop: true},
		},
		"sleepers are evicted for the room that their residues take": {
			world: node(80, on("a", launcher.Awake, 70).holding(70), on("x", launcher.Sleeping, 70).holding(5).used(2), on("y", launcher.Sleeping, 70).holding(5).used(1)),
			swap:  Plan{Room: ptr(want("b", 72)), Out: []string{"a"}},
			evict: []string{"x"},
		},
		"max_instances makes room by evicting a sleeper": {
			world: budget(node(70, on("a", launcher.Awake, 70).holding(70), on("x", launcher.Sleeping, 70).used(3)), launcherapi.Budget{MaxInstances: 2}),
			swap:  Plan{Room: &Want{ID: "b", New: true, Bytes: map[string]uint64{"g0": 70 * gib}}, Out: []string{"a"}},
			evict: []string{"x"},
		},
		"the bytes that sleepers hold of a GPU are bounded": {
			world: budget(node(73, on("a", launcher.Awake, 70).holding(70), on("x", launcher.Sleeping, 70).holding(3)), launcherapi.Budget{MaxSleeperBytesPerGPU: 2 * gib}),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
			evict: []string{"x"},
		},
		"the main memory that sleepers hold is bounded": {
			world: budget(node(70, on("a", launcher.Awake, 70).holding(70), hosting(on("x", launcher.Sleeping, 1), 9).used(5), on("y", launcher.Sleeping, 1).used(9)), launcherapi.Budget{MaxHostSleeperBytes: 8 * gib}),
			swap:  Plan{Out: []string{"a"}},
			evict: []string{"x"},
		},
		"a sleeper that another swap moves is let be": {
			world: budget(node(76, on("a", launcher.Awake, 70).holding(70), moved(on("x", launcher.Sleeping, 70).holding(3)), on("y", launcher.Sleeping, 70).holding(3)), launcherapi.Budget{MaxSleepersPerGPU: 1}),
			swap:  Plan{Room: ptr(want("b", 70)), Out: []string{"a"}},
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

func TestASwapFitsThoughTheDriverDoesNotSayWhoHoldsWhat(t *testing.T) {
	w := node(74, on("a", launcher.Awake, 74))
	w.GPUs["g0"] = GPU{UUID: "g0", TotalBytes: 80 * gib, UsedBytes: 74 * gib}
	b := want("b", 74)
	b.New = true
	evict, err := evictions(w, Plan{Room: &b, Out: []string{"a"}})
	require.NoError(t, err)
	assert.Empty(t, evict)
	_, err = evictions(w, Plan{Room: &b})
	assert.EqualValues(t, 6*gib, fitOf(t, err).Available, "unless the one that holds it stays")
}

func TestEnforceStopsSleepersUntilTheBudgetsHold(t *testing.T) {
	w := budget(node(9, on("a", launcher.Sleeping, 70).holding(3).used(3), on("b", launcher.Sleeping, 70).holding(3).used(2), on("c", launcher.Sleeping, 70).holding(3).used(1)),
		launcherapi.Budget{MaxSleepersPerGPU: 1})
	assert.Equal(t, []string{"b", "c"}, Enforce(w, "a"), "a has just fallen asleep")
	assert.Equal(t, []string{"a", "b"}, Enforce(w, ""))
	assert.Empty(t, Enforce(node(9, w.Instances...), ""), "without a budget nobody goes")
}

func TestADecisionLeavesThePictureAsItWas(t *testing.T) {
	w := budget(node(76, on("a", launcher.Awake, 70).holding(70), on("x", launcher.Sleeping, 70).holding(6)), launcherapi.Budget{MaxSleepersPerGPU: 1})
	before := w.GPUs["g0"].UsedBytes
	_, err := evictions(w, Plan{Room: ptr(want("b", 70)), Out: []string{"a"}})
	require.NoError(t, err)
	assert.Equal(t, before, w.GPUs["g0"].UsedBytes)
	assert.Equal(t, launcher.Awake, w.Instances[0].State)
}

func ptr(w Want) *Want { return &w }

func pinned(i Instance) Instance { i.Pinned = true; return i }

func moved(i Instance) Instance { i.SwapID = "other"; return i }

func hosting(i Instance, gibs uint64) Instance { i.Host = gibs * gib; return i }

func withAsleep(i Instance, gibs uint64) Instance {
	i.Residue = map[string]uint64{"g0": gibs * gib}
	return i
}

func TestWhatAnInstanceHoldsOfAGPUThatItWasNotGivenIsForeign(t *testing.T) {
	w := node(70, Instance{ID: "stray", State: launcher.Awake, Now: map[string]uint64{"g0": 70 * gib}})
	assert.Equal(t, 70*gib, w.Foreign("g0"))
	fit := fitOf(t, Admit(w, want("b", 30)))
	assert.Equal(t, 70*gib, fit.Foreign)
	assert.Equal(t, 10*gib, fit.Available)
}

func TestASleeperThatEndsIsCountedWithItsResidue(t *testing.T) {
	for _, state := range []launcher.State{launcher.Stopping, launcher.Stopped, launcher.Failed} {
		ending := on("a", launcher.Sleeping, 60).holding(5)
		ending.Awake, ending.State = map[string]uint64{"g0": 60 * gib}, state
		assert.Error(t, Admit(node(5, ending), want("b", 70)), "one that was awake may hold as much again: %s", state)
		ending.Slept = true
		assert.NoError(t, Admit(node(5, ending), want("b", 70)), state)
		assert.Error(t, Admit(node(5, ending), want("b", 76)), state)
	}
}
