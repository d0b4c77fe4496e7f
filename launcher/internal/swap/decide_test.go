package swap

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/launcher/internal/supervisor"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const gib = uint64(1) << 30

// someone is an instance in a state on GPUs.
func someone(id string, state launcher.State, gpus ...string) launcherapi.Instance {
	return launcherapi.Instance{InstanceID: id, State: string(state), GPUUUIDs: gpus}
}

// picture is the ledger's world of those instances, each taking 70 of 80 GiB.
func picture(all []launcherapi.Instance) ledger.World {
	w := ledger.World{GPUs: map[string]ledger.GPU{}}
	for _, g := range []string{"g0", "g1"} {
		w.GPUs[g] = ledger.GPU{UUID: g, TotalBytes: 80 * gib, ProcessesKnown: true}
	}
	for _, i := range all {
		expected := map[string]uint64{}
		for _, g := range i.GPUUUIDs {
			expected[g] = 70 * gib
		}
		w.Instances = append(w.Instances, ledger.Instance{ID: i.InstanceID, State: launcher.State(i.State), GPUs: i.GPUUUIDs, Expected: expected})
	}
	return w
}

func bring(id string, gpus ...string) order {
	return order{swapID: "s", in: id, gpus: gpus, held: gpus, out: launcherapi.SwapOut{Mode: launcherapi.OutSleep, Level: 1}}
}

func newOne(id string, gpus ...string) order {
	o := bring(id, gpus...)
	o.draft = &supervisor.Draft{ID: id}
	o.want = &ledger.Want{ID: id, New: true, Bytes: map[string]uint64{}}
	for _, g := range gpus {
		o.want.Bytes[g] = 70 * gib
	}
	return o
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		order order
		there []launcherapi.Instance
		out   []string
		wants bool
	}{
		"a new one takes the place of who is awake":    {newOne("b", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0")}, []string{"a"}, true},
		"a sleeper takes the place of who is awake":    {bring("b", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Sleeping, "g0")}, []string{"a"}, true},
		"everybody awake on any of the GPUs leaves":    {newOne("c", "g0", "g1"), []launcherapi.Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Awake, "g1")}, []string{"a", "b"}, true},
		"who is awake elsewhere stays":                 {newOne("b", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g1")}, nil, true},
		"who is awake already and alone needs nothing": {bring("a", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0")}, nil, false},
		"who is awake already sends the others away":   {bring("a", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0"), someone("b", launcher.Awake, "g0")}, []string{"b"}, false},
		"swap out alone": {bring("", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0")}, []string{"a"}, false},
		"swap out where nobody is awake needs nothing":      {bring("", "g0"), []launcherapi.Instance{someone("a", launcher.Sleeping, "g0")}, nil, false},
		"whoever has ended does not matter":                 {newOne("b", "g0"), []launcherapi.Instance{someone("a", launcher.Failed, "g0"), someone("c", launcher.Stopped, "g0")}, nil, true},
		"somebody that moves on other GPUs does not matter": {newOne("b", "g0"), []launcherapi.Instance{someone("a", launcher.Starting, "g1")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := picture(c.there)
			for n := range w.Instances { // what has ended holds nothing
				w.Instances[n].Released = w.Instances[n].State.Ended()
			}
			intent, err := decide(c.order, w, c.there)
			require.NoError(t, err)
			assert.Equal(t, c.out, intent.Out)
			assert.Equal(t, c.wants, intent.Want != nil)
		})
	}
}

func TestDecideRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		order order
		there []launcherapi.Instance
		code  string
	}{
		"an instance that lives on other GPUs":          {bring("b", "g0"), []launcherapi.Instance{someone("b", launcher.Sleeping, "g1")}, launcherapi.CodeConflict},
		"an instance that lives on more GPUs":           {bring("b", "g0"), []launcherapi.Instance{someone("b", launcher.Sleeping, "g0", "g1")}, launcherapi.CodeConflict},
		"an instance that has failed":                   {bring("b", "g0"), []launcherapi.Instance{someone("b", launcher.Failed, "g0")}, launcherapi.CodeConflict},
		"an instance that nobody knows":                 {bring("b", "g0"), nil, launcherapi.CodeNotFound},
		"a new one whose id is taken":                   {newOne("a", "g0"), []launcherapi.Instance{someone("a", launcher.Awake, "g0")}, launcherapi.CodeExists},
		"one that cannot fit, however many would leave": {tooLarge(newOne("b", "g0")), []launcherapi.Instance{someone("a", launcher.Awake, "g0")}, launcherapi.CodeDoesNotFit},
	} {
		t.Run(name, func(t *testing.T) {
			w := picture(c.there)
			for n := range w.Instances {
				w.Instances[n].Released = w.Instances[n].State.Ended()
			}
			_, err := decide(c.order, w, c.there)
			assert.Equal(t, c.code, launcher.CodeOf(err), "%v", err)
		})
	}
}

func tooLarge(o order) order {
	o.want.Bytes["g0"] = 81 * gib
	return o
}

func TestNothingIsDecidedWhileSomebodyMoves(t *testing.T) {
	for _, s := range []launcher.State{launcher.Starting, launcher.FallingAsleep, launcher.Waking, launcher.Stopping, launcher.Failed} {
		there := []launcherapi.Instance{someone("a", s, "g0")}
		_, err := decide(newOne("b", "g0"), picture(there), there)
		moving, ok := errors.AsType[*movingError](err)
		require.True(t, ok, "%s: %v", s, err)
		assert.Equal(t, "a", moving.id)
	}
}

func TestNobodyIsSentAwayBeforeItsTime(t *testing.T) {
	now := time.Unix(1000, 0)
	there := []launcherapi.Instance{someone("a", launcher.Awake, "g0")}
	there[0].StateSince = now.Add(-3 * time.Second)
	w := picture(there)
	w.Budget.MinResidency = launcherapi.Duration(10 * time.Second)
	o := newOne("b", "g0")
	o.now = now
	_, err := decide(o, w, there)
	soon, ok := errors.AsType[*tooSoonError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, 7*time.Second, soon.wait)
	o.now = now.Add(soon.wait)
	_, err = decide(o, w, there)
	assert.NoError(t, err)
}

func TestATurnIsWidenedToEveryGPUOfWhoLeaves(t *testing.T) {
	there := []launcherapi.Instance{someone("a", launcher.Awake, "g0", "g1")}
	_, err := decide(newOne("b", "g0"), picture(there), there)
	wider, ok := errors.AsType[*widerError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, []string{"g1"}, wider.gpus)
}
