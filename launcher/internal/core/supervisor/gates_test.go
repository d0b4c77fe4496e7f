package supervisor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// askedGates opens gates whose clients ask the supervisor for the instance until the
// end. A gate does not close before its client has an answer.
type askedGates struct {
	*fakeGates
	ask func(id string)
}

type askedGate struct {
	*fakeGate
	ask func()
}

func (g *askedGates) Listen(o GateOptions) (Gate, error) {
	gate, err := g.fakeGates.Listen(o)
	if err != nil {
		return nil, err
	}
	return askedGate{gate.(*fakeGate), func() { g.ask(o.InstanceID) }}, nil
}

func (g askedGate) Close(ctx context.Context) error {
	answered := make(chan struct{})
	go func() { defer close(answered); g.ask() }()
	<-answered
	return g.fakeGate.Close(ctx)
}

func TestClosePortsDoesNotBlockClientsThatAskForState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates *askedGates
		r := newRig(t, func(o *Options) {
			gates = &askedGates{fakeGates: o.Gates.(*fakeGates)}
			o.Gates = gates
		})
		gates.ask = func(id string) { _, _ = r.Get(id) }
		r.awake("a", "0.3")
		r.awake("b", "0.3")
		require.NoError(t, r.Close(t.Context(), false))
		require.True(t, gates.gate("a").closed)
		require.True(t, gates.gate("b").closed)
	})
}

func TestCloseWaitsForAnswersInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.awake("a", "0.3")
		gate := r.gates.gate("a")
		gate.drained, gate.inFlight = make(chan struct{}), 1
		time.AfterFunc(10*time.Second, func() {
			require.False(t, gate.closed)
			require.Equal(t, "shut", gate.get())
			close(gate.drained)
		})
		began := time.Now()
		require.NoError(t, r.Close(t.Context(), false))
		require.Equal(t, 10*time.Second, time.Since(began))
		require.True(t, gate.closed)
		require.Equal(t, string(launcher.Awake), r.state("a"))
	})
}

// tellingGates opens gates that remember why they are shut.
type tellingGates struct {
	*fakeGates
	mu   sync.Mutex
	said []string
}

type tellingGate struct {
	*fakeGate
	gates *tellingGates
}

func (g *tellingGates) Listen(o GateOptions) (Gate, error) {
	gate, err := g.fakeGates.Listen(o)
	if err != nil {
		return nil, err
	}
	return tellingGate{gate.(*fakeGate), g}, nil
}

func (g tellingGate) Shut(reason string) {
	g.gates.mu.Lock()
	defer g.gates.mu.Unlock()
	g.gates.said = append(g.gates.said, reason)
	g.fakeGate.Shut(reason)
}

func (g *tellingGates) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.said)
}

func TestShutGateNamesTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates *tellingGates
		r := newRig(t, func(o *Options) {
			gates = &tellingGates{fakeGates: o.Gates.(*fakeGates)}
			o.Gates = gates
		})
		r.awake("a", "0.3")
		require.Equal(t, []string{"the engine is starting"}, gates.all())
		r.asleep("a")
		require.Equal(t, []string{"the instance is falling asleep", "the instance is sleeping"}, gates.all()[1:])
		r.engine.wake = broken
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.Error(t, err)
		require.Equal(t, []string{"the instance is waking", "the instance is sleeping"}, gates.all()[3:])
	})
}

func TestGateFollowsStateClaimAndClosing(t *testing.T) {
	for _, state := range launcher.States {
		for _, held := range []bool{false, true} {
			for _, closing := range []bool{false, true} {
				gate := &fakeGate{state: "new"}
				s := &Supervisor{closing: closing}
				s.setGate(&instance{state: state, gateHeldShut: held, gate: gate})
				want := "shut"
				switch {
				case state == launcher.Awake && !held && !closing:
					want = "open"
				case state == launcher.Stopping || state.Ended():
					want = "failed"
				}
				require.Equal(t, want, gate.get(), "%s, held %v, closing %v", state, held, closing)
			}
		}
	}
}

func TestGateStaysShutWhileTheLauncherCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.awake("a", "0.3")
		gate := r.gates.gate("a")
		gate.drained, gate.inFlight = make(chan struct{}), 1
		ready := make(chan struct{})
		r.engine.ready = func(ctx context.Context) error {
			select {
			case <-ready:
				return nil
			default:
				return errBroken
			}
		}
		r.create("b", "0.3")
		time.AfterFunc(time.Second, func() { close(ready) })
		time.AfterFunc(2*time.Second, func() {
			require.Equal(t, "shut", r.gates.gate("b").get())
			close(gate.drained)
		})
		require.NoError(t, r.Close(t.Context(), false))
		require.Equal(t, string(launcher.Awake), r.state("b"))
	})
}
