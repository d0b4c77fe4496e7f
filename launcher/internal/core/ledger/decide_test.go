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

// someone is an instance in a state on GPUs, of each of which it takes 70 of 80 GiB.
// Where it has ended it holds nothing.
func someone(id string, state launcher.State, gpus ...string) Instance {
	expected := map[string]uint64{}
	for _, g := range gpus {
		expected[g] = 70 * gib
	}
	return Instance{ID: id, State: state, GPUs: gpus, Expected: expected, Released: state.Ended()}
}

// picture is the world of those instances, on two GPUs.
func picture(all ...Instance) World {
	w := World{GPUs: map[string]GPU{}, Instances: all}
	for _, g := range []string{"g0", "g1"} {
		w.GPUs[g] = GPU{UUID: g, TotalBytes: 80 * gib, ProcessesKnown: true}
	}
	return w
}

// bring asks for an instance that there is.
func bring(id string, gpus ...string) Plan { return Plan{SwapID: "s", In: id, GPUs: gpus, Level: 1} }

// newOne asks for an instance that is to be made.
func newOne(id string, gpus ...string) Plan {
	p := bring(id, gpus...)
	p.Room = &Want{ID: id, New: true, Bytes: map[string]uint64{}}
	for _, g := range gpus {
		p.Room.Bytes[g] = 70 * gib
	}
	return p
}

func decide(w World, p Plan) (Plan, error) { return Decide(w, p, p.GPUs, time.Unix(1000, 0)) }

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		plan  Plan
		there []Instance
		out   []string
		wants bool
	}{
		"a new one takes the place of who is awake":    {newOne("b", "g0"), []Instance{someone("a", launcher.Awake, "g0")}, []string{"a"}, true},
		"a sleeper takes the place of who is awake":    {bring("b", "g0"), []Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Sleeping, "g0")}, []string{"a"}, true},
		"everybody awake on any of the GPUs leaves":    {newOne("c", "g0", "g1"), []Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Awake, "g1")}, []string{"a", "b"}, true},
		"who is awake elsewhere stays":                 {newOne("b", "g0"), []Instance{someone("a", launcher.Awake, "g1")}, nil, true},
		"who is awake already and alone needs nothing": {bring("a", "g0"), []Instance{someone("a", launcher.Awake, "g0")}, nil, false},
		"who is awake already sends the others away":   {bring("a", "g0"), []Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Awake, "g0")}, []string{"b"}, false},
		"swap out alone": {bring("", "g0"), []Instance{someone("a", launcher.Awake, "g0")}, []string{"a"}, false},
		"swap out where nobody is awake needs nothing":      {bring("", "g0"), []Instance{someone("a", launcher.Sleeping, "g0")}, nil, false},
		"whoever has ended does not matter":                 {newOne("b", "g0"), []Instance{someone("a", launcher.Failed, "g0"), someone("c", launcher.Stopped, "g0")}, nil, true},
		"somebody that moves on other GPUs does not matter": {newOne("b", "g0"), []Instance{someone("a", launcher.Starting, "g1")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := decide(picture(c.there...), c.plan)
			require.NoError(t, err)
			assert.Equal(t, c.out, plan.Out)
			assert.Equal(t, c.wants, plan.Room != nil)
		})
	}
}

func TestDecideRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		plan  Plan
		there []Instance
		code  string
	}{
		"an instance that lives on other GPUs":          {bring("b", "g0"), []Instance{someone("b", launcher.Sleeping, "g1")}, launcherapi.CodeConflict},
		"an instance that lives on more GPUs":           {bring("b", "g0"), []Instance{someone("b", launcher.Sleeping, "g0", "g1")}, launcherapi.CodeConflict},
		"an instance that has failed":                   {bring("b", "g0"), []Instance{someone("b", launcher.Failed, "g0")}, launcherapi.CodeConflict},
		"an instance that nobody knows":                 {bring("b", "g0"), nil, launcherapi.CodeNotFound},
		"a new one whose id is taken":                   {newOne("a", "g0"), []Instance{someone("a", launcher.Awake, "g0")}, launcherapi.CodeExists},
		"one that cannot fit, however many would leave": {tooLarge(newOne("b", "g0")), []Instance{someone("a", launcher.Awake, "g0")}, launcherapi.CodeDoesNotFit},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decide(picture(c.there...), c.plan)
			assert.Equal(t, c.code, launcher.CodeOf(err), "%v", err)
		})
	}
}

func tooLarge(p Plan) Plan {
	p.Room.Bytes["g0"] = 81 * gib
	return p
}

func TestNothingIsDecidedWhileSomebodyMoves(t *testing.T) {
	for _, s := range []launcher.State{launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Failed} {
		a := someone("a", s, "g0")
		a.Released = false // its processes, or its memory, are still there
		_, err := decide(picture(a), newOne("b", "g0"))
		moving, ok := errors.AsType[*MovingError](err)
		require.True(t, ok, "%s: %v", s, err)
		assert.Equal(t, "a", moving.InstanceID)
	}
}

func TestNobodyIsSentAwayBeforeItsTime(t *testing.T) {
	now := time.Unix(1000, 0)
	a := someone("a", launcher.Awake, "g0")
	a.Since = now.Add(-3 * time.Second)
	w := picture(a)
	w.Budget.MinResidency = launcherapi.Duration(10 * time.Second)
	p := newOne("b", "g0")
	_, err := Decide(w, p, p.GPUs, now)
	soon, ok := errors.AsType[*TooSoonError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 7*time.Second, soon.Wait)
	_, err = Decide(w, p, p.GPUs, now.Add(soon.Wait))
	assert.NoError(t, err)
}

func TestATurnIsWidenedToEveryGPUOfWhoLeaves(t *testing.T) {
	_, err := decide(picture(someone("a", launcher.Awake, "g0", "g1")), newOne("b", "g0"))
	wider, ok := errors.AsType[*WiderError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, []string{"g1"}, wider.GPUs)
}

func TestAPlanSaysWhatItsRoomSays(t *testing.T) {
	there := []Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Sleeping, "g0")}
	for name, c := range map[string]struct {
		ask     Plan
		makes   bool
		parties []string
	}{
		"a new one is none of those that there are": {newOne("c", "g0"), true, []string{"a"}},
		"a sleeper is":      {bring("b", "g0"), false, []string{"a", "b"}},
		"who is awake is":   {bring("a", "g0"), false, []string{"a"}},
		"nobody is to come": {bring("", "g0"), false, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := decide(picture(there...), c.ask)
			require.NoError(t, err)
			assert.Equal(t, c.makes, plan.Makes())
			assert.Equal(t, c.parties, plan.Parties())
		})
	}
}
