package act

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const withSeats = `{spec: {url: 'hf://o/m', resourceProfile: gpu, scaleDownDelaySeconds: 5}, specs: [{name: seats, seatPool: pool}, {name: pods, unschedulableSeconds: 1}]}`

// newSeats is a site whose Model has an entry with seats, and a seat without a model.
func newSeats(t *testing.T) *site {
	t.Helper()
	pool := &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool"}, Spec: v1alpha1.SeatPoolSpec{LauncherConfigName: "vllm", GPUs: 1}}
	template, err := workload.SeatTemplate(pool, "requester")
	require.NoError(t, err)
	seat := workload.Seat(pool, &template, 0)
	seat.UID = "seat"
	return newSite(t, withSeats, pool, seat)
}

func (s *site) asked() podmeta.SeatsAsked {
	s.t.Helper()
	var config v1alpha1.InferenceServerConfig
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "llama-seats"}, &config))
	assert.Equal(s.t, "pool", config.Labels[podmeta.LabelSeat])
	return seatsAsked(&config)
}

// seat changes the seat.
func (s *site) seat(change func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	var pod corev1.Pod
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "pool-0"}, &pod))
	if change != nil {
		change(&pod)
		require.NoError(s.t, s.api.Update(s.t.Context(), &pod))
	}
	return &pod
}

// seated gives the Model the seat.
func (s *site) seated() {
	s.t.Helper()
	s.seat(func(pod *corev1.Pod) {
		workload.Take(pod, podmeta.Assignment{Model: "llama", Entry: "seats", Config: "llama-seats", Generation: 1, Hash: s.asked().Hash, Since: s.now.UTC()}, "")
	})
}

// served has the binding say that the seat serves what it was given.
func (s *site) served() {
	s.t.Helper()
	s.seat(func(pod *corev1.Pod) {
		pod.Annotations[podmeta.AnnotationStatus] = podmeta.Status{State: serversdecide.StateServing, Seat: podmeta.ReadAssignment(pod).ID(), Since: s.now.UTC()}.Encode()
	})
}

func TestEntryWithSeatsAsksForThem(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.pass(0)
	assert.Equal(t, 0, s.asked().Replicas)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	assert.Equal(t, 1, s.asked().Replicas)
	assert.Equal(t, 100, s.asked().Target)
	assert.Zero(t, *s.deployment("llama-pods").Spec.Replicas, "the entry with Pods comes after it")

	s.seated()
	s.pass(0)
	assert.NotContains(t, s.seat(nil).Labels, podmeta.LabelServes, "its status is about no model yet")
	s.served()
	s.pass(0)
	assert.Equal(t, "llama", s.seat(nil).Labels[podmeta.LabelServes])
	assert.Equal(t, v1alpha1.RunsInSeats, s.model().Status.Specs[0].RunsIn)
	s.seat(func(pod *corev1.Pod) { workload.Leave(pod, s.now) })
	s.pass(0)
	assert.NotContains(t, s.seat(nil).Labels, podmeta.LabelServes, "it drains")

	s.seat(func(pod *corev1.Pod) { workload.Give(pod, s.now) })
	s.count = demand.Count{}
	s.pass(time.Second)
	assert.Equal(t, 0, s.asked().Replicas, "it asks for no seat again without a request")
}

func TestStatusOfTheModelBeforeCountsForNoOther(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.seated()
	for name, status := range map[string]podmeta.Status{
		"served": {State: serversdecide.StateServing, Seat: "another"},
		"failed": {State: serversdecide.StateWaiting, Reason: string(serversdecide.AttemptFailed), Seat: "another"},
		"wrong":  {State: serversdecide.StateWaiting, Errors: []string{"wrong"}, Seat: "another"},
	} {
		s.seat(func(pod *corev1.Pod) { pod.Annotations[podmeta.AnnotationStatus] = status.Encode() })
		s.pass(0)
		assert.NotContains(t, s.seat(nil).Labels, podmeta.LabelServes, name)
		assert.Equal(t, 1, s.asked().Replicas, name)
	}
}

func TestSeatThatFailsIsGivenBack(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.seated()
	s.seat(func(pod *corev1.Pod) {
		pod.Annotations[podmeta.AnnotationStatus] = podmeta.Status{State: serversdecide.StateWaiting, Reason: string(serversdecide.AttemptFailed), Message: "exit 1", Seat: podmeta.ReadAssignment(pod).ID(), Since: s.now.UTC()}.Encode()
	})
	s.pass(time.Second)
	assert.Equal(t, 0, s.asked().Replicas)
	assert.Equal(t, "-1", s.seat(nil).Annotations[corev1.PodDeletionCost], "this seat goes")
	assert.Equal(t, int32(1), *s.deployment("llama-pods").Spec.Replicas)
	assert.Equal(t, "EngineFailed", s.model().Status.Specs[0].LastFailure.Reason)
	assert.NotNil(t, s.seat(nil), "the pool has it")
}

func TestEntryWithoutASeatLeadsToPods(t *testing.T) {
	s := newSeats(t)
	s.change(func(m *v1alpha1.Model) { m.Specs[0].UnschedulableSeconds = new(int32(2)) })
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.pass(time.Second)
	assert.Zero(t, *s.deployment("llama-pods").Spec.Replicas)
	s.pass(2 * time.Second)
	assert.Equal(t, int32(1), *s.deployment("llama-pods").Spec.Replicas)
	assert.Equal(t, 0, s.asked().Replicas)
	assert.Contains(t, s.model().Status.Specs[0].LastFailure.Message, "SeatPool pool has no seat for it")
}

func TestRemovedEntryGivesItsSeatsBackBeforeItsConfigGoes(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.seated()
	s.change(func(m *v1alpha1.Model) { m.Specs = m.Specs[1:] })
	s.pass(0)
	assert.Zero(t, s.asked(), "it asks for no seat")
	s.pass(0)
	s.asked() // it is there while the seat has its model
	s.seat(func(pod *corev1.Pod) { workload.Give(pod, s.now) })
	s.pass(0)
	err := s.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "llama-seats"}, &v1alpha1.InferenceServerConfig{})
	assert.True(t, client.IgnoreNotFound(err) == nil && err != nil)
	assert.NotNil(t, s.seat(nil))
}

func TestEntryThatIsEditedToSeatsLosesItsDeployment(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.change(func(m *v1alpha1.Model) { m.Specs[1].SeatPool = "pool" })
	s.pass(0)
	s.pass(0)
	err := s.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "llama-pods"}, &appsv1.Deployment{})
	assert.True(t, client.IgnoreNotFound(err) == nil && err != nil)
}

func TestSeatOfSomebodyElseIsNone(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.seated()
	s.served()
	s.seat(func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	s.pass(0)
	assert.NotContains(t, s.seat(nil).Labels, podmeta.LabelServes)
}

func TestSeatThatSomebodyEditsFailsNoEntry(t *testing.T) {
	s := newSeats(t)
	s.pass(0)
	s.count = demand.Count{Held: 1}
	s.pass(time.Second)
	s.seated()
	s.served()
	s.pass(time.Second)
	require.Equal(t, "llama", s.seat(nil).Labels[podmeta.LabelServes])
	s.seat(func(pod *corev1.Pod) {
		pod.Annotations[podmeta.AnnotationInferenceServerConfig] = "llama-pods"
		pod.Annotations[podmeta.AnnotationStatus] = podmeta.Status{State: serversdecide.StateWaiting, Seat: podmeta.ReadAssignment(pod).ID(), Errors: []string{"the annotations differ"}}.Encode()
	})
	s.pass(time.Second)
	s.pass(time.Second)
	assert.NotContains(t, s.seat(nil).Labels, podmeta.LabelServes)
	assert.Nil(t, s.model().Status.Specs[0].LastFailure)
	assert.Equal(t, 1, s.asked().Replicas)
}
