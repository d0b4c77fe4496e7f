package gang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// site is a controller with ModelServings, and a node.
type site struct {
	t       *testing.T
	api     *apiServer
	c       *Controller
	now     time.Time
	events  *events.FakeRecorder
	writes  []string
	changed []string // ModelServings that Changed told of
}

func newSite(t *testing.T, gpus int64, servings ...*v1alpha1.ModelServing) *site {
	t.Helper()
	s := &site{t: t, now: now, events: events.NewFakeRecorder(20)}
	s.api = newAPIServer(func() metav1.Time { return metav1.NewTime(s.now) }, func(format string, args ...any) {
		if !strings.HasPrefix(format, "  ") {
			s.writes = append(s.writes, strings.TrimSuffix(fmt.Sprintf(format, args...), ": <nil>"))
		}
	})
	s.api.missed = func() {}
	s.api.nodes["a"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Allocatable: gpuList(gpus)}}
	for _, serving := range servings {
		s.api.servings[serving.Name] = serving
		s.api.changed(serving)
		for _, r := range groups.WantedGroups(serving, nil, nil)[0].Replicas {
			for _, name := range r.Pods {
				s.add(gatedPod(serving, name, 1))
			}
		}
	}
	s.restart()
	return s
}

func (s *site) add(pod *corev1.Pod) {
	s.api.pods[pod.Name] = pod
	s.api.changed(pod)
}

// restart starts another controller.
func (s *site) restart() {
	s.c = New(Options{API: s.api, Recorder: s.events, Now: func() time.Time { return s.now }, Changed: func(all []reconcile.Request) {
		for _, r := range all {
			s.changed = append(s.changed, r.String())
		}
	}})
}

// pass refreshes the cache and runs a pass. It returns after which time the controller looks again.
func (s *site) pass() time.Duration {
	s.t.Helper()
	s.api.refresh()
	result, err := s.c.Reconcile(s.t.Context(), reconcile.Request{})
	require.NoError(s.t, err)
	return result.RequeueAfter
}

// takeWrites returns the writes since the last call. Gates that were removed one after the other, which may
// be in any order, are sorted.
func (s *site) takeWrites() []string {
	writes := s.writes
	s.writes = nil
	for from := 0; from < len(writes); {
		to := from
		for to < len(writes) && strings.HasPrefix(writes[to], "remove the gate of ") {
			to++
		}
		slices.Sort(writes[from:to])
		from = max(to, from+1)
	}
	return writes
}

// put gives Pods a node.
func (s *site) put(names ...string) {
	for _, name := range names {
		s.api.pods[name].Spec.NodeName = "a"
		s.api.changed(s.api.pods[name])
	}
}

func (s *site) record(name string) v1alpha1.ServingGroupGang {
	s.t.Helper()
	require.NotNil(s.t, s.api.servings[name].Status.Groups[0].Gang)
	return *s.api.servings[name].Status.Groups[0].Gang
}

const (
	entry  = "llama-0-prefill-0-0"
	worker = "llama-0-prefill-0-1"
)

func TestGroupIsRecordedAndThenItsGatesGo(t *testing.T) {
	s := newSite(t, 3, serving("llama"))
	s.api.pods[worker].Spec.Containers[0].Resources.Limits = gpuList(0)
	assert.Equal(t, placingLimit, s.pass())
	assert.Equal(t, []string{"record of llama", "remove the gate of " + entry, "remove the gate of " + worker}, s.takeWrites(), "the Pods with the most GPUs come first")
	assert.Equal(t, v1alpha1.ServingGroupGang{State: v1alpha1.GangAdmitted, Since: metav1.NewTime(now)}, s.record("llama"))
	assert.Equal(t, placingLimit, s.pass())
	assert.Empty(t, s.takeWrites())

	s.put(entry, worker)
	s.pass()
	assert.Equal(t, []string{"record of llama"}, s.takeWrites())
	assert.Equal(t, v1alpha1.GangPlaced, s.record("llama").State)
	s.pass()
	assert.Equal(t, []string{"record of llama", "remove the gate of llama-0-prefill-1-0", "remove the gate of llama-0-prefill-1-1"}, s.takeWrites(), "the extra Pods")
	for range 2 {
		assert.Zero(t, s.pass())
	}
	assert.Empty(t, s.takeWrites(), "nothing at rest")
}

func TestPassWaitsUntilTheCacheShowsItsWrites(t *testing.T) {
	s := newSite(t, 2, serving("a"), serving("b"))
	s.pass()
	assert.Len(t, s.takeWrites(), 3)
	result, err := s.c.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, cachePause, result.RequeueAfter)
	s.now = s.now.Add(hearLimit)
	_, err = s.c.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, []string{`record of a: Operation cannot be fulfilled on  "a": it has changed`}, s.takeWrites(), "it does not wait for ever, and what it writes is refused")
}

func TestGroupThatMissesItsDeadlineGivesBackItsNodes(t *testing.T) {
	s := newSite(t, 2, serving("llama"))
	s.pass()
	s.put(entry)
	s.now = now.Add(placingLimit)
	s.restart() // by a later process
	s.takeWrites()
	s.pass()
	assert.Equal(t, []string{"delete " + entry, "delete " + worker}, s.takeWrites())
	assert.Equal(t, "Warning GangMissed llama-0: not all of its Pods got nodes within 1m0s: it gives back what it had, and is tried again after a pause", <-s.events.Events)
	s.pass()
	assert.Empty(t, s.takeWrites(), "a Pod is still going")
	delete(s.api.pods, entry)
	s.restart()
	s.pass()
	assert.Equal(t, []string{"record of llama"}, s.takeWrites())
	missed := v1alpha1.ServingGroupGang{State: v1alpha1.GangMissed, Since: metav1.NewTime(s.now), Misses: 1}
	assert.Equal(t, missed, s.record("llama"))

	for _, name := range []string{entry, worker} {
		s.add(gatedPod(s.api.servings["llama"], name, 1))
	}
	s.now = s.now.Add(firstPause / 2)
	s.restart()
	assert.Equal(t, firstPause/2, s.pass(), "the rest of the pause")
	assert.Empty(t, s.takeWrites())
	s.now = s.now.Add(firstPause / 2)
	s.pass()
	assert.Len(t, s.takeWrites(), 3)
	assert.EqualValues(t, 1, s.record("llama").Misses)
	assert.Empty(t, s.events.Events)
}

func TestReasonIsToldWhenItChanges(t *testing.T) {
	s := newSite(t, 0, serving("llama"))
	s.pass()
	assert.Equal(t, []string{"ns/llama"}, s.changed)
	const why = "2 Pods need 2 GPUs together, and the nodes that they may use have %d free"
	assert.Equal(t, fmt.Sprintf(why, 0), s.c.Waits("llama", "llama-0"))
	assert.Zero(t, s.pass())
	s.now = now.Add(time.Second)
	s.api.nodes["a"].Status.Allocatable = gpuList(1)
	s.api.changed(s.api.nodes["a"])
	assert.Equal(t, numbersPause-time.Second, s.pass(), "other numbers are told later")
	assert.Equal(t, fmt.Sprintf(why, 0), s.c.Waits("llama", "llama-0"))
	s.now = now.Add(numbersPause)
	s.pass()
	assert.Equal(t, fmt.Sprintf(why, 1), s.c.Waits("llama", "llama-0"))
	assert.Equal(t, []string{"ns/llama", "ns/llama"}, s.changed)
	s.api.nodes["a"].Status.Allocatable = gpuList(2)
	s.api.changed(s.api.nodes["a"])
	s.pass()
	assert.Empty(t, s.c.Waits("llama", "llama-0"), "another row is told at once")
	assert.Len(t, s.changed, 3)
}

func TestGateOfAStrangerIsToldOnce(t *testing.T) {
	s := newSite(t, 2)
	s.add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: podmeta.GateGang}}}})
	s.pass()
	s.pass()
	assert.Equal(t, "Warning NotOfAGroup the scheduling gate hotseat.dev/gang is for Pods of ModelServings: remove it, since nobody else does", <-s.events.Events)
	assert.Empty(t, s.events.Events)
	assert.Empty(t, s.writes)
}

func TestPodsOfOthersTakeRoomUntilTheyEnd(t *testing.T) {
	s := newSite(t, 2, serving("llama"))
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "p", UID: "p"}, Spec: corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpuList(1)}}}}}
	s.add(other)
	s.pass()
	assert.Empty(t, s.takeWrites())
	other.Status.Phase = corev1.PodSucceeded
	s.api.changed(other)
	s.pass()
	assert.Len(t, s.takeWrites(), 3)
}

func TestFrozenProcessWritesNothing(t *testing.T) {
	s := newSite(t, 2, serving("llama"))
	s.c.opts.Leads = func() bool { return false }
	s.api.refresh()
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{})
	require.ErrorIs(t, err, dualpods.ErrNotLeading)
	assert.Empty(t, s.writes)
}

func TestPassBeginsWhenRoomMayHaveChanged(t *testing.T) {
	pod := func(so ...func(*corev1.Pod)) *corev1.Pod {
		p := gatedPod(serving("llama"), entry, 1)
		for _, change := range so {
			change(p)
		}
		return p
	}
	onNode := func(p *corev1.Pod) { p.Spec.NodeName = "a" }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	ready := func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }
	for name, c := range map[string]struct {
		was, is *corev1.Pod
		begins  bool
	}{
		"a node": {pod(), pod(onNode), true}, "its end": {pod(onNode), pod(onNode, ended), true}, "no gate": {pod(), free(pod()), true},
		"its deletion": {pod(), goes(waits)(pod()), true}, "an address": {pod(onNode), pod(onNode, ready), false},
	} {
		assert.Equal(t, c.begins, getsFurther(c.was, c.is), name)
	}
	was := node("a", 0).Node
	for name, change := range map[string]func(*corev1.Node){
		"GPUs":   func(n *corev1.Node) { n.Status.Allocatable = gpuList(1) },
		"labels": func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} },
		"taints": func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} },
		"closed": func(n *corev1.Node) { n.Spec.Unschedulable = true },
	} {
		is := was.DeepCopy()
		assert.False(t, hasOtherRoom(was, is))
		change(is)
		assert.True(t, hasOtherRoom(was, is), name)
	}
}

// The controller that is told writes the status, perhaps before the record.
func TestNobodyIsToldBeforeTheRecordIsWritten(t *testing.T) {
	s := newSite(t, 1, serving("llama"))
	s.pass()
	s.takeWrites()
	s.api.nodes["a"].Status.Allocatable = gpuList(2)
	s.api.changed(s.api.nodes["a"])
	var before []string
	s.c.opts.Changed = func([]reconcile.Request) { before = s.takeWrites() }
	s.pass()
	assert.Equal(t, []string{"record of llama", "remove the gate of llama-0-prefill-0-0", "remove the gate of llama-0-prefill-0-1"}, before)
}
