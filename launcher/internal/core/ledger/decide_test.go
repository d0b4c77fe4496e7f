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

// instanceIn returns an instance in that state. It takes 70 of the 80 GiB of each of
// its GPUs, or nothing if it has ended.
func instanceIn(id string, state launcher.State, gpus ...string) Instance {
	expected := map[string]uint64{}
	for _, g := range gpus {
		expected[g] = 70 * gib
	}
	return Instance{ID: id, State: state, GPUs: gpus, Expected: expected, Released: state.Ended()}
}

// twoGPUWorld returns a World with two GPUs and these instances.
func twoGPUWorld(all ...Instance) World {
	w := World{GPUs: map[string]GPU{}, Instances: all}
	for _, g := range []string{"g0", "g1"} {
		w.GPUs[g] = GPU{UUID: g, TotalBytes: 80 * gib, ProcessesKnown: true}
	}
	return w
}

// planFor asks for an existing instance.
func planFor(id string, gpus ...string) launcher.Plan {
	return launcher.Plan{SwapID: "s", In: id, GPUs: gpus, Level: 1}
}

// planForNew asks for a new instance.
func planForNew(id string, gpus ...string) launcher.Plan {
	p := planFor(id, gpus...)
	p.Room = &launcher.Room{ID: id, New: true, Bytes: map[string]uint64{}}
	for _, g := range gpus {
		p.Room.Bytes[g] = 70 * gib
	}
	return p
}

func decide(w World, p launcher.Plan) (launcher.Plan, error) {
	return Decide(w, p, p.GPUs, time.Unix(1000, 0))
}

func TestDecidePlansWhoLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		plan  launcher.Plan
		there []Instance
		out   []string
		wants bool
	}{
		"a new instance replaces the awake one":                           {planForNew("b", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0")}, []string{"a"}, true},
		"a sleeper replaces the awake instance":                           {planFor("b", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0"), instanceIn("b", launcher.Sleeping, "g0")}, []string{"a"}, true},
		"every instance awake on any of the GPUs leaves":                  {planForNew("c", "g0", "g1"), []Instance{instanceIn("a", launcher.Awake, "g0"), instanceIn("b", launcher.Awake, "g1")}, []string{"a", "b"}, true},
		"an instance awake on another GPU stays":                          {planForNew("b", "g0"), []Instance{instanceIn("a", launcher.Awake, "g1")}, nil, true},
		"an instance already awake and alone needs nothing":               {planFor("a", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0")}, nil, false},
		"an instance already awake sends the others away":                 {planFor("a", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0"), instanceIn("b", launcher.Awake, "g0")}, []string{"b"}, false},
		"a swap without an incoming instance sends the others away":       {planFor("", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0")}, []string{"a"}, false},
		"a swap without an incoming instance on an idle GPU does nothing": {planFor("", "g0"), []Instance{instanceIn("a", launcher.Sleeping, "g0")}, nil, false},
		"ended instances do not matter":                                   {planForNew("b", "g0"), []Instance{instanceIn("a", launcher.Failed, "g0"), instanceIn("c", launcher.Stopped, "g0")}, nil, true},
		"an instance that moves on another GPU does not matter":           {planForNew("b", "g0"), []Instance{instanceIn("a", launcher.Starting, "g1")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := decide(twoGPUWorld(c.there...), c.plan)
			require.NoError(t, err)
			assert.Equal(t, c.out, plan.Out)
			assert.Equal(t, c.wants, plan.Room != nil)
		})
	}
}

func TestDecideRefusesImpossibleSwaps(t *testing.T) {
	for name, c := range map[string]struct {
		plan  launcher.Plan
		there []Instance
		code  string
	}{
		"an instance that lives on other GPUs":                      {planFor("b", "g0"), []Instance{instanceIn("b", launcher.Sleeping, "g1")}, launcherapi.CodeConflict},
		"an instance that lives on more GPUs":                       {planFor("b", "g0"), []Instance{instanceIn("b", launcher.Sleeping, "g0", "g1")}, launcherapi.CodeConflict},
		"an instance that has failed":                               {planFor("b", "g0"), []Instance{instanceIn("b", launcher.Failed, "g0")}, launcherapi.CodeConflict},
		"an instance that does not exist":                           {planFor("b", "g0"), nil, launcherapi.CodeNotFound},
		"a new instance whose id is taken":                          {planForNew("a", "g0"), []Instance{instanceIn("a", launcher.Awake, "g0")}, launcherapi.CodeExists},
		"an instance larger than the GPU, even if all others leave": {withTooManyBytes(planForNew("b", "g0")), []Instance{instanceIn("a", launcher.Awake, "g0")}, launcherapi.CodeDoesNotFit},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decide(twoGPUWorld(c.there...), c.plan)
			assert.Equal(t, c.code, launcher.CodeOf(err), "%v", err)
		})
	}
}

func withTooManyBytes(p launcher.Plan) launcher.Plan {
	p.Room.Bytes["g0"] = 81 * gib
	return p
}

func TestDecideWaitsWhileAnInstanceMoves(t *testing.T) {
	for _, s := range []launcher.State{launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Failed} {
		a := instanceIn("a", s, "g0")
		a.Released = false // its processes or its memory are still there
		_, err := decide(twoGPUWorld(a), planForNew("b", "g0"))
		moving, ok := errors.AsType[*MovingError](err)
		require.True(t, ok, "%s: %v", s, err)
		assert.Equal(t, "a", moving.InstanceID)
	}
}

func TestInstanceStaysAwakeForMinResidency(t *testing.T) {
	now := time.Unix(1000, 0)
	a := instanceIn("a", launcher.Awake, "g0")
	a.Since = now.Add(-3 * time.Second)
	w := twoGPUWorld(a)
	w.Budget.MinResidency = launcherapi.Duration(10 * time.Second)
	p := planForNew("b", "g0")
	_, err := Decide(w, p, p.GPUs, now)
	soon, ok := errors.AsType[*MinResidencyError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 7*time.Second, soon.Wait)
	_, err = Decide(w, p, p.GPUs, now.Add(soon.Wait))
	assert.NoError(t, err)
}

func TestTurnWidensToEveryGPUOfALeavingInstance(t *testing.T) {
	_, err := decide(twoGPUWorld(instanceIn("a", launcher.Awake, "g0", "g1")), planForNew("b", "g0"))
	wider, ok := errors.AsType[*MoreGPUsError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, []string{"g1"}, wider.GPUs)
}

func TestPlanNamesItsPartiesAndWhetherItCreates(t *testing.T) {
	there := []Instance{instanceIn("a", launcher.Awake, "g0"), instanceIn("b", launcher.Sleeping, "g0")}
	for name, c := range map[string]struct {
		ask     launcher.Plan
		makes   bool
		parties []string
	}{
		"a new instance is created and is no party":                      {planForNew("c", "g0"), true, []string{"a"}},
		"a sleeper that comes in is a party":                             {planFor("b", "g0"), false, []string{"a", "b"}},
		"an awake instance that stays is a party":                        {planFor("a", "g0"), false, []string{"a"}},
		"without an incoming instance only the leaving ones are parties": {planFor("", "g0"), false, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := decide(twoGPUWorld(there...), c.ask)
			require.NoError(t, err)
			assert.Equal(t, c.makes, plan.CreatesIn())
			assert.Equal(t, c.parties, plan.Parties())
		})
	}
}
