package seatpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/model/seats"
	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = types.NamespacedName{Namespace: "ns", Name: "pool"}

// site is a controller with a pool of two seats.
type site struct {
	t       *testing.T
	c       *Controller
	api     client.Client
	now     time.Time
	counts  map[string]demand.Count
	unheard bool
	asleep  map[string][]string // instances that sleep, with their GPUs
	deaf    bool                // launchers have not told what they have
	state   string              // that they have
	acts    []string
	cut     seats.Row // at whose write the controller is cut off from the API server
	stale   *corev1.Pod
	same    bool     // the API server changes no Pod
	events  []string // what tells an Event from others: their reasons, actions and related objects
}

// Eventf notes an Event.
func (s *site) Eventf(_, related runtime.Object, _, reason, action, _ string, _ ...any) {
	s.events = append(s.events, reason+", "+action+", "+related.(*corev1.Pod).Name)
}

var launcherSpec = corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm"}}}

// Of tells the demand of the test.
func (s *site) Of(model types.NamespacedName) (demand.Count, bool) {
	return s.counts[model.Name], !s.unheard
}

// Pick tells what sleeps.
func (s *site) Pick(uid string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	for id, gpus := range s.asleep {
		if uid == "launcher-uid" {
			keep(id, launcherapi.Instance{State: s.state, GPUUUIDs: gpus})
		}
	}
	return nodeview.View{Connected: !s.deaf}
}

func newSite(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	pool := &v1alpha1.SeatPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "pool-uid", Generation: 1},
		Spec:       v1alpha1.SeatPoolSpec{Replicas: new(int32(2)), GPUs: 1, LauncherConfigName: "vllm"},
	}
	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "launcher", UID: "launcher-uid"}, Spec: launcherSpec}
	s := &site{t: t, now: time.Unix(1_700_000_000, 0), counts: map[string]demand.Count{}, asleep: map[string][]string{}, state: "sleeping"}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, pool, launcher)...).WithStatusSubresource(pool, &corev1.Pod{}).WithIndex(&corev1.Pod{}, Index, Indexed).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				o.SetUID(types.UID(o.GetName() + "-uid"))
				return api.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if s.cut != "" {
					return errors.New("the controller was killed")
				}
				if s.same {
					return nil
				}
				return api.Patch(ctx, o, p, opts...)
			},
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := api.List(ctx, list, opts...)
				if pods, ok := list.(*corev1.PodList); ok && s.stale != nil {
					for i := range pods.Items {
						if pods.Items[i].Name == s.stale.Name {
							pods.Items[i] = *s.stale
						}
					}
				}
				return err
			},
		}).Build()
	s.begin()
	return s
}

// begin has a new controller begin.
func (s *site) begin() {
	s.c = New(Options{
		API: s.api, Demand: s, Views: s, Image: "requester", Recorder: s, Now: func() time.Time { return s.now },
		Acts: func(row seats.Row, written bool) {
			if written {
				s.acts = append(s.acts, string(row))
			}
		},
	})
}

// pass runs a pass, some time after the last one, and returns the rows of its writes.
func (s *site) pass(after time.Duration) []string {
	s.t.Helper()
	s.now, s.acts = s.now.Add(after), nil
	_, err := s.c.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(s.t, err)
	return s.acts
}

func (s *site) seat(name string) *corev1.Pod {
	s.t.Helper()
	var pod corev1.Pod
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod))
	return &pod
}

// runs has the binding say that a seat can take a model.
func (s *site) runs(name, gpu string) {
	s.t.Helper()
	pod := s.seat(name)
	pod.Annotations[podmeta.AnnotationStatus] = podmeta.Status{State: serversdecide.StateWaiting, Reason: string(serversdecide.NoModel), Launcher: "launcher", GPUs: []string{gpu}}.Encode()
	pod.Spec.NodeName = "node"
	require.NoError(s.t, s.api.Update(s.t.Context(), pod))
	pod.Status.PodIP = "10.0.0.1"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	require.NoError(s.t, s.api.Status().Update(s.t.Context(), pod))
}

// serves has the binding say that a seat serves its model.
func (s *site) serves(name string) {
	s.t.Helper()
	pod := s.seat(name)
	status := podmeta.ReadStatus(pod)
	status.State, status.Reason, status.Since = serversdecide.StateServing, "", s.now.UTC()
	pod.Annotations[podmeta.AnnotationStatus] = status.Encode()
	pod.Labels[podmeta.LabelServes] = podmeta.ReadAssignment(pod).Model
	require.NoError(s.t, s.api.Update(s.t.Context(), pod))
}

// config is the InferenceServerConfig of a Model's entry that asks for seats.
func config(model string, asked podmeta.SeatsAsked) *v1alpha1.InferenceServerConfig {
	asked.Hash = "h"
	owner := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Name: model, UID: types.UID(model)}}
	return &v1alpha1.InferenceServerConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: model + "-seats", Generation: 1, Labels: map[string]string{podmeta.LabelModel: model, podmeta.LabelModelEntry: "seats", podmeta.LabelSeat: "pool"},
			Annotations:     map[string]string{podmeta.AnnotationSeatsAsked: asked.Encode()},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("Model"))},
		},
		Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: "vllm", ModelServerConfig: v1alpha1.ModelServerConfig{Port: 8000, Args: []string{"org/" + model}}},
	}
}

// running is a site whose seats run.
func running(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	s := newSite(t, objects...)
	assert.Equal(t, []string{"too few", "too few"}, s.pass(0))
	s.runs("pool-0", "GPU-0")
	s.runs("pool-1", "GPU-1")
	return s
}

func TestPoolMakesItsSeatsOnce(t *testing.T) {
	s := newSite(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool-0", Labels: map[string]string{podmeta.LabelSeat: "pool"}}})
	assert.Equal(t, []string{"too few", "too few"}, s.pass(0), "the Pod of somebody else is no seat")
	assert.True(t, metav1.IsControlledBy(s.seat("pool-1"), &v1alpha1.SeatPool{ObjectMeta: metav1.ObjectMeta{UID: "pool-uid"}}))
	assert.NotNil(t, s.seat("pool-2"))
	assert.Empty(t, s.pass(time.Second))
}

func TestSeatGoesToWhoAsksForIt(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	assert.Empty(t, s.pass(time.Second), "it has no request")
	s.counts["a"] = demand.Count{Held: 1}
	f, problems := form.CheckConfig(config("a", podmeta.SeatsAsked{}))
	require.Empty(t, problems)
	on, _ := f.On(&launcherSpec)
	s.asleep[form.InstanceID(on, []string{"GPU-1"})] = []string{"GPU-1"}
	s.asleep["another"] = []string{"GPU-0"}
	assert.Equal(t, []string{"sleeps behind it"}, s.pass(time.Second))
	pod := s.seat("pool-1")
	of := podmeta.ReadAssignment(pod)
	assert.Equal(t, podmeta.Assignment{Model: "a", Entry: "seats", Config: "a-seats", Generation: 1, Hash: "h", Since: of.Since}, of)
	assert.Equal(t, "a", pod.Labels[podmeta.LabelModel])
	assert.Empty(t, s.pass(time.Second))

	var pool v1alpha1.SeatPool
	require.NoError(t, s.api.Get(t.Context(), key, &pool))
	assert.Equal(t, v1alpha1.SeatNumbers{Total: 2, Idle: 1, Taken: 1}, pool.Status.Seats)
	assert.Equal(t, "a/seats (1)", pool.Status.Serving)
	assert.Equal(t, []v1alpha1.SeatModel{{Model: "a", Entry: "seats", Wants: 1, Has: 1, Seats: []string{"pool-1"}}}, pool.Status.Models)
	assert.Equal(t, []reconcile.Request{{NamespacedName: key}}, s.c.OfModels([]types.NamespacedName{{Namespace: "ns", Name: "a"}}))
	assert.Empty(t, s.c.OfModels([]types.NamespacedName{{Namespace: "other", Name: "a"}}))
}

func TestModelThatFallsAsleepGoesBackToItsSeat(t *testing.T) {
	for state, want := range map[string]string{"falling_asleep": "sleeps behind it", "awake": "sleeps behind it", "stopping": "free seat"} {
		s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
		s.counts["a"] = demand.Count{Held: 1}
		f, _ := form.CheckConfig(config("a", podmeta.SeatsAsked{}))
		on, _ := f.On(&launcherSpec)
		s.state = state
		s.asleep[form.InstanceID(on, []string{"GPU-1"})] = []string{"GPU-1"}
		assert.Equal(t, []string{want}, s.pass(time.Second), state)
	}
}

func TestNewControllerHearsLaunchersBeforeItGivesSeats(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.deaf = true
	s.begin()
	assert.Empty(t, s.pass(time.Second))
	assert.Empty(t, s.pass(launchersLimit-time.Millisecond))
	assert.Equal(t, []string{"free seat"}, s.pass(time.Millisecond), "one that is silent for long keeps no Model waiting")
}

func TestConfigOfSomebodyElseGetsNoSeat(t *testing.T) {
	stranger := config("a", podmeta.SeatsAsked{Replicas: 1, Min: 1})
	stranger.OwnerReferences = nil
	s := running(t, stranger)
	assert.Empty(t, s.pass(time.Second))
}

func TestBusySeatDrainsBeforeItIsTaken(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 2}), config("b", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	assert.Equal(t, []string{"free seat", "free seat"}, s.pass(time.Second))
	s.serves("pool-0")
	s.serves("pool-1")
	s.counts["a"] = demand.Count{InFlight: map[string]int{"pool-0": 1, "pool-1": 1}}
	s.counts["b"] = demand.Count{Held: 1}
	assert.Empty(t, s.pass(time.Second), "its time is not over")
	assert.Equal(t, []string{"busy model"}, s.pass(10*time.Second))
	pod := s.seat("pool-0")
	assert.NotContains(t, pod.Labels, podmeta.LabelServes)
	assert.Equal(t, "a", podmeta.ReadAssignment(pod).Model, "it keeps its model")
	s.begin()
	assert.Empty(t, s.pass(time.Second), "another controller goes on to wait")
	s.counts["a"] = demand.Count{InFlight: map[string]int{"pool-1": 1}}
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second))
	assert.Equal(t, "b", podmeta.ReadAssignment(s.seat("pool-0")).Model)
	assert.Equal(t, []string{
		"SeatTaken, free seat a/seats, pool-0", "SeatTaken, free seat a/seats, pool-1", "SeatDrains, busy model a/seats, pool-0", "SeatTaken, free seat b/seats, pool-0",
	}, s.events, "the recorder joins no two of these")
}

func TestDrainIsBoundedAcrossControllers(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.pass(time.Second)
	s.serves("pool-0")
	s.counts["a"] = demand.Count{InFlight: map[string]int{"pool-0": 1}}
	gone := config("a", podmeta.SeatsAsked{})
	require.NoError(t, s.api.Delete(t.Context(), gone))
	assert.Equal(t, []string{"not wanted"}, s.pass(time.Second))
	s.begin()
	assert.Empty(t, s.pass(29*time.Second))
	assert.Equal(t, []string{"not wanted"}, s.pass(time.Second))
	assert.Empty(t, podmeta.ReadAssignment(s.seat("pool-0")).ID())
}

func TestSeatOfAnEntryThatIsGoneWaitsForTheFrontDoors(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.pass(time.Second)
	s.serves("pool-0")
	require.NoError(t, s.api.Delete(t.Context(), config("a", podmeta.SeatsAsked{})))
	s.unheard = true
	s.begin()
	assert.Equal(t, []string{"not wanted"}, s.pass(time.Second))
	assert.Empty(t, s.pass(10*time.Second), "requests may be in flight")
	s.unheard = false
	assert.Equal(t, []string{"not wanted"}, s.pass(time.Second))
	assert.Empty(t, podmeta.ReadAssignment(s.seat("pool-0")).ID())
}

func TestSeatWhoseAnnotationIsRemovedLosesItsModel(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.pass(time.Second)
	s.serves("pool-0")
	pod := s.seat("pool-0")
	delete(pod.Annotations, podmeta.AnnotationSeat)
	require.NoError(t, s.api.Update(t.Context(), pod))
	for range 3 {
		s.pass(time.Second)
	}
	pod = s.seat("pool-0")
	assert.NotContains(t, pod.Labels, podmeta.LabelServes)
	if of := podmeta.ReadAssignment(pod); of.ID() == "" {
		assert.NotContains(t, pod.Annotations, podmeta.AnnotationInferenceServerConfig)
	}
}

func TestSeatThatSomebodyPointsAtAnotherConfigGetsItsModelAnew(t *testing.T) {
	edits := map[string]func(map[string]string){
		"another config": func(of map[string]string) { of[podmeta.AnnotationInferenceServerConfig] = "b-seats" },
		"a patch beside": func(of map[string]string) { of[podmeta.AnnotationServerPatch] = "spec: {}" },
		"another name": func(of map[string]string) {
			of[podmeta.PrefixAlias+"inference-server-config"] = "b-seats"
		},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
			s.counts["a"] = demand.Count{InFlight: map[string]int{"pool-0": 1}}
			s.pass(time.Second)
			s.serves("pool-0")
			pod := s.seat("pool-0")
			was := podmeta.ReadAssignment(pod).ID()
			require.Equal(t, "a-seats", podmeta.ReadAssignment(pod).Config)
			edit(pod.Annotations)
			require.NoError(t, s.api.Update(t.Context(), pod))
			_, problems := podmeta.ReadRequester(s.seat("pool-0"))
			require.NotEmpty(t, problems, "nothing is bound by it")

			assert.Contains(t, s.pass(time.Second), "not wanted")
			assert.NotContains(t, s.seat("pool-0").Labels, podmeta.LabelServes)
			s.counts["a"] = demand.Count{Held: 1}
			assert.Contains(t, s.pass(time.Second), "not wanted")
			s.runs("pool-0", "GPU-0")
			s.pass(time.Second)
			for _, seat := range []string{"pool-0", "pool-1"} {
				assert.False(t, podmeta.SeatEdited(s.seat(seat)), seat)
				assert.NotEqual(t, was, podmeta.ReadAssignment(s.seat(seat)).ID(), seat)
			}
		})
	}
}

func TestControllerThatIsKilledHasGivenAllOrNothing(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	before := s.seat("pool-0")
	s.cut = seats.RowFree
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.Error(t, err)
	assert.Equal(t, before, s.seat("pool-0"))
	s.cut = ""
	s.begin()
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second))
}

func TestStaleCacheGivesNoSeatTwice(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}), config("b", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.stale = s.seat("pool-0")
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second))
	s.counts["b"] = demand.Count{Held: 1}
	assert.Empty(t, s.pass(time.Second), "the cache does not show the write")
	s.begin() // which does not know what the earlier one has written
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second), "the other seat; the first one is refused")
	s.stale = nil
	assert.Equal(t, "a", podmeta.ReadAssignment(s.seat("pool-0")).Model)
	assert.Equal(t, "b", podmeta.ReadAssignment(s.seat("pool-1")).Model)
}

func TestWriteThatChangesNoSeatHoldsUpNoPass(t *testing.T) {
	s := running(t, config("a", podmeta.SeatsAsked{Replicas: 1}))
	s.counts["a"] = demand.Count{Held: 1}
	s.same = true
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second))
	assert.Equal(t, []string{"free seat"}, s.pass(time.Second), "it is tried again")
}

func TestTemplateThatCannotBeUsedIsTold(t *testing.T) {
	s := running(t)
	var pool v1alpha1.SeatPool
	require.NoError(t, s.api.Get(t.Context(), key, &pool))
	pool.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"metadata": {"labels": {"hotseat.dev/serves": "a"}}}`)}
	pool.Spec.Replicas = new(int32(3))
	require.NoError(t, s.api.Update(t.Context(), &pool))
	assert.Empty(t, s.pass(2*time.Second), "no seat is made or replaced")
	require.NoError(t, s.api.Get(t.Context(), key, &pool))
	assert.Equal(t, metav1.ConditionFalse, pool.Status.Conditions[0].Status)
	assert.Contains(t, pool.Status.Conditions[0].Message, "hotseat.dev/serves")
}
