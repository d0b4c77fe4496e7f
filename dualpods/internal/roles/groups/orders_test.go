package groups

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// yard has the launchers of a site. They note what they are ordered, and refuse what refuses says.
type yard struct {
	orders  []string
	refuses map[string]error
	swaps   map[types.UID]dualpods.RankSwap // by launcher
}

func (y *yard) SwapOf(launcher types.UID, _ *podmeta.Binding) dualpods.RankSwap {
	return y.swaps[launcher]
}

type yardLauncher struct {
	*yard
	name string
}

func (l yardLauncher) note(format string, args ...any) error {
	order := l.name + ": " + fmt.Sprintf(format, args...)
	l.orders = append(l.orders, order)
	return l.refuses[order]
}

func (l yardLauncher) LeasePorts(_ context.Context, id string, count int) (launcherapi.PortLease, error) {
	return launcherapi.PortLease{ID: id, Ports: []int{20000, 20007}}, l.note("lease %d for %s", count, id)
}

func (l yardLauncher) GoSwap(_ context.Context, id string) (launcherapi.Swap, error) {
	return launcherapi.Swap{}, l.note("go %s", id)
}

func (l yardLauncher) CommitSwap(_ context.Context, id string) (launcherapi.Swap, error) {
	return launcherapi.Swap{}, l.note("commit %s", id)
}

func (l yardLauncher) UndoSwap(_ context.Context, id string) (launcherapi.Swap, error) {
	return launcherapi.Swap{}, l.note("undo %s", id)
}

func (l yardLauncher) Delete(_ context.Context, id string) (launcherapi.Instance, error) {
	return launcherapi.Instance{}, l.note("delete %s", id)
}

// newYard makes a site whose llama has an entry and a worker, each bound to a launcher of its own.
func newYard(t *testing.T) (*site, *yard) {
	t.Helper()
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		role := &m.Spec.Template.Roles[0]
		role.WorkerReplicas, role.WorkerTemplate = new(int32(1)), role.EntryTemplate
	}, nil)
	y := &yard{refuses: map[string]error{}, swaps: map[types.UID]dualpods.RankSwap{}}
	s.c.opts.Swaps = y
	s.c.opts.Launcher = func(key string) Launcher { return yardLauncher{y, key} }
	s.ports = map[string]int{}
	s.passes(1)
	s.bindTo(entry, "first", "i")
	s.bindTo(worker, "second", "j")
	for _, name := range []string{entry, worker} {
		var pod corev1.Pod
		require.True(t, s.read(name, &pod))
		pod.Annotations[podmeta.AnnotationStatus] = `{"reason": "WaitsForRanks"}`
		require.NoError(t, s.api.Update(t.Context(), &pod))
	}
	return s, y
}

const worker = "llama-0-prefill-0-1"

func (s *site) server(name string) podmeta.Server {
	s.t.Helper()
	var pod corev1.Pod
	require.True(s.t, s.read(name, &pod))
	return podmeta.ReadServer(&pod)
}

func TestRanksAreToldOfTheirStartOnce(t *testing.T) {
	s, y := newYard(t)
	s.passes(2)
	assert.Equal(t, []string{"first: lease 8 for i", "second: lease 8 for j"}, y.orders)
	first, second := s.server(entry), s.server(worker)
	assert.Equal(t, podmeta.Server{Attempt: first.Attempt, Group: first.Attempt, Entry: "10.0.0.9:20007"}, first)
	assert.Equal(t, podmeta.Server{Attempt: second.Attempt, Group: first.Attempt, Entry: "10.0.0.9:20007"}, second)
	assert.NotEqual(t, first.Attempt, second.Attempt)
	assert.Equal(t, v1alpha1.ReasonNotReady, s.groups()[0].Reason)
}

func TestRanksAreOrderedTogetherTheEntryLast(t *testing.T) {
	s, y := newYard(t)
	s.passes(1)
	for phase, want := range map[string][]string{
		launcherapi.PhaseGo:     {"second: go swap-2", "first: go swap-1"},
		launcherapi.PhaseCommit: {"second: commit swap-2", "first: commit swap-1"},
	} {
		y.swaps["first"], y.swaps["second"] = dualpods.RankSwap{ID: "swap-1", Phase: phase}, dualpods.RankSwap{ID: "swap-2", Phase: phase}
		y.orders = nil
		s.passes(1)
		assert.Equal(t, want, y.orders)
	}
}

func TestLostRankStopsTheOthers(t *testing.T) {
	s, y := newYard(t)
	s.passes(1)
	y.swaps["first"] = dualpods.RankSwap{ID: "swap-1", Phase: launcherapi.PhaseHealthy}
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second"}}))
	y.orders = nil
	s.passes(1)
	assert.Equal(t, []string{"first: undo swap-1"}, y.orders)

	y.refuses["first: undo swap-1"] = launcher.Conflictf("it is committed")
	y.orders = nil
	s.passes(1)
	assert.Equal(t, []string{"first: undo swap-1", "first: delete i"}, y.orders)
}

func TestRankOfASilentLauncherKeepsNoOtherFromBeingStopped(t *testing.T) {
	s, y := newYard(t)
	members := []*Member{{place: place{pod: 1}, Bound: &Bound{Launcher: launcherPod(), Record: &podmeta.Binding{Instance: "i"}}}, {place: place{pod: 2}, Bound: &Bound{Launcher: launcherPod(), Record: &podmeta.Binding{Instance: "j"}, Known: true}}}
	members[0].Bound.Launcher.UID, members[1].Bound.Launcher.UID = "first", "second"
	y.orders, y.refuses = nil, map[string]error{"first: delete i": errors.New("no answer")}
	err := s.c.order(t.Context(), &Step{Do: Stop, Ranks: members})
	require.ErrorContains(t, err, "no answer")
	assert.Equal(t, []string{"second: delete j", "first: delete i"}, y.orders)
}

func TestOrderThatFailsIsToldAndGivenAgain(t *testing.T) {
	s, y := newYard(t)
	y.refuses["first: lease 8 for i"] = launcher.Conflictf("no port is left")
	result := s.passes(1)
	assert.Equal(t, orderPause, result.RequeueAfter)
	assert.Zero(t, s.server(entry))
	assert.Zero(t, s.server(worker))
	delete(y.refuses, "first: lease 8 for i")
	s.passes(1)
	assert.NotZero(t, s.server(entry))

	s.c.opts.Launcher = func(string) Launcher { return nil }
	y.swaps["first"], y.swaps["second"] = dualpods.RankSwap{ID: "swap-1", Phase: launcherapi.PhaseGo}, dualpods.RankSwap{ID: "swap-2", Phase: launcherapi.PhaseGo}
	assert.Equal(t, orderPause, s.passes(1).RequeueAfter, "a launcher that is not watched yet")
}
