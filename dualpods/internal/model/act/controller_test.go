package act

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/model/workload"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = types.NamespacedName{Namespace: "ns", Name: "llama"}

// site is a controller with a Model.
type site struct {
	t       *testing.T
	c       *Controller
	api     client.Client
	now     time.Time
	count   demand.Count
	told    *events.FakeRecorder
	unheard bool // a front door has not spoken
	stale   bool // the cache shows no Deployments yet
	same    bool // the API server stores no status
	writes  []string
}

// Of tells the demand of the test.
func (s *site) Of(types.NamespacedName) (demand.Count, bool) { return s.count, !s.unheard }

func newSite(t *testing.T, model string, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "model", Generation: 1, Finalizers: []string{podmeta.FinalizerModel}}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(model), m))
	launchers := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "vllm"}}
	profile := &v1alpha1.ResourceProfile{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.ResourceProfileSpec{LauncherConfigName: "vllm", Limits: corev1.ResourceList{podmeta.ResourceGPU: one}}}
	s := &site{t: t, now: time.Unix(1_700_000_000, 0)}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, m, profile, launchers)...).WithStatusSubresource(m, &corev1.Pod{}).WithIndex(&corev1.Pod{}, Index, Indexed).WithIndex(&v1alpha1.Model{}, IndexName, IndexedNames).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				s.note("create", o)
				setDefaults(o)
				return api.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				s.note("update", o)
				setDefaults(o)
				return api.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				s.note("patch", o)
				return api.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				s.note("delete", o)
				return api.Delete(ctx, o, opts...)
			},
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*appsv1.DeploymentList); ok && s.stale {
					return nil
				}
				return api.List(ctx, list, opts...)
			},
			SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
				s.note("status of", o)
				if s.same {
					return nil
				}
				return api.SubResource(sub).Update(ctx, o, opts...)
			},
		}).Build()
	s.told = events.NewFakeRecorder(100)
	s.c = New(Options{API: s.api, Live: s.api, Demand: s, Images: workload.Images{Requester: "requester", Fetch: "launcher"}, Recorder: s.told, Metrics: NewMetrics(s.clock), Now: s.clock})
	return s
}

func (s *site) clock() time.Time { return s.now }

// setDefaults does to an object what the API server does.
func setDefaults(o client.Object) {
	if d, ok := o.(*appsv1.Deployment); ok && d.Spec.Template.Spec.DNSPolicy == "" {
		d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst
	}
}

func (s *site) note(what string, o client.Object) {
	kinds, _, err := s.api.Scheme().ObjectKinds(o)
	require.NoError(s.t, err)
	s.writes = append(s.writes, what+" "+kinds[0].Kind+" "+o.GetName())
}

// pass runs a pass, some time after the last one, and returns what it wrote.
func (s *site) pass(after time.Duration) []string {
	s.t.Helper()
	s.now, s.writes = s.now.Add(after), nil
	_, err := s.c.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(s.t, err)
	return s.writes
}

func (s *site) model() *v1alpha1.Model {
	s.t.Helper()
	var m v1alpha1.Model
	require.NoError(s.t, s.api.Get(s.t.Context(), key, &m))
	return &m
}

// change edits the Model.
func (s *site) change(edit func(*v1alpha1.Model)) {
	s.t.Helper()
	m := s.model()
	edit(m)
	m.Generation++
	require.NoError(s.t, s.api.Update(s.t.Context(), m))
	s.writes = nil
}

func (s *site) deployment(name string) *appsv1.Deployment {
	s.t.Helper()
	var d appsv1.Deployment
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, &d))
	return &d
}

func (s *site) pod(name string) *corev1.Pod {
	s.t.Helper()
	var p corev1.Pod
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: name}, &p))
	return &p
}

// addPod adds a Pod that a ReplicaSet has made of a Deployment.
func (s *site) addPod(name, entry, status string) {
	s.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: name, CreationTimestamp: metav1.NewTime(s.now),
		Annotations:     map[string]string{podmeta.AnnotationStatus: status, podmeta.AnnotationInferenceServerConfig: "llama-" + entry},
		Labels:          map[string]string{podmeta.LabelModel: "llama", podmeta.LabelModelEntry: entry, appsv1.DefaultDeploymentUniqueLabelKey: "abc"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "llama-" + entry + "-abc", UID: "rs", Controller: new(true)}},
	}}
	require.NoError(s.t, s.api.Create(s.t.Context(), p))
}

const (
	serves = `{"state":"Serving","since":"2023-11-14T22:13:20Z"}`
	simple = `{spec: {url: 'hf://o/m', resourceProfile: gpu, scaleDownDelaySeconds: 5}}`
)

func TestModelScalesFromZeroAndBack(t *testing.T) {
	s := newSite(t, simple)
	assert.Equal(t, []string{"create InferenceServerConfig llama-default", "create Deployment llama-default", "update Deployment llama-default", "status of Model llama"}, s.pass(0))
	assert.Zero(t, *s.deployment("llama-default").Spec.Replicas)
	assert.Empty(t, s.pass(time.Second), "at rest nothing is written")
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAvailable))
	assert.Equal(t, "each entry can run", meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionAccepted).Message)

	s.count.Held = 1
	assert.Contains(t, s.pass(time.Second), "update Deployment llama-default")
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas)
	s.pass(time.Second)
	assert.Empty(t, s.pass(time.Second), "it is not asked for twice")
	assert.True(t, meta.IsStatusConditionFalse(s.model().Status.Conditions, v1alpha1.ConditionAvailable))

	s.addPod("p", "default", `{"state":"Waiting"}`)
	s.pass(0)
	assert.NotContains(t, s.pod("p").Labels, podmeta.LabelServes)
	p := s.pod("p")
	p.Annotations[podmeta.AnnotationStatus] = serves
	require.NoError(t, s.api.Update(t.Context(), p))
	assert.Contains(t, s.pass(time.Second), "patch Pod p")
	assert.Equal(t, "llama", s.pod("p").Labels[podmeta.LabelServes])
	assert.Equal(t, "default (1)", s.model().Status.Serving)
	s.pass(0)
	assert.Empty(t, s.pass(time.Second), "at rest nothing is written")

	s.count = demand.Count{InFlight: map[string]int{"p": 1}}
	s.pass(time.Minute)
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas)
	s.count = demand.Count{}
	s.pass(time.Second)
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas, "the pause is too short")
	s.count = demand.Count{Ended: s.clock().Add(14 * time.Second)}
	s.pass(14 * time.Second)
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas, "between two passes there was a request")
	s.pass(time.Minute)
	assert.Equal(t, int32(0), *s.deployment("llama-default").Spec.Replicas)
	assert.NotContains(t, s.pod("p").Labels, podmeta.LabelServes)
}

func TestRefusedRequestStartsAModelThatLetsNoneWait(t *testing.T) {
	s := newSite(t, simple)
	s.count.Refused = true
	s.pass(0)
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas)
}

func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "llama-default"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(7))}}
	s := newSite(t, simple, theirs)
	s.pass(0)
	s.count.Held = 1
	s.pass(time.Second)
	assert.Equal(t, int32(7), *s.deployment("llama-default").Spec.Replicas)
	c := meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionAccepted)
	require.NotNil(t, c)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, "entry default: Deployment llama-default is not of this Model, and is left alone: delete it, or give the entry another name", c.Message)

	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "stranger", Labels: map[string]string{podmeta.LabelModel: "llama", podmeta.LabelModelEntry: "default"}, Annotations: map[string]string{podmeta.AnnotationStatus: serves}}}
	s = newSite(t, simple, stranger)
	s.pass(0)
	s.count.Held = 1
	s.pass(time.Second)
	assert.NotContains(t, s.pod("stranger").Labels, podmeta.LabelServes)
}

func TestDeletedModelGoesAfterItsObjectsAndWhatSleeps(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, minReplicas: 1}}`)
	var order []string
	s.c.opts.Forget = func(_ context.Context, config *v1alpha1.InferenceServerConfig) error {
		order = append(order, "forget "+config.Name)
		return nil
	}
	s.change(func(m *v1alpha1.Model) { m.Finalizers = nil })
	assert.Equal(t, []string{"patch Model llama"}, s.pass(0), "the finalizer comes first")
	s.pass(0)
	s.addPod("p", "default", serves)
	s.pass(time.Second)
	require.NoError(t, s.api.Delete(t.Context(), s.model()))
	assert.Equal(t, []string{"patch Pod p", "delete Deployment llama-default"}, s.pass(0), "its Pods stop serving first")
	assert.Empty(t, order, "its Pods may need what sleeps")
	assert.Equal(t, []string{"delete InferenceServerConfig llama-default"}, s.pass(0))
	assert.Equal(t, []string{"forget llama-default"}, order)
	assert.Equal(t, []string{"patch Model llama"}, s.pass(0))
	assert.True(t, apierrors.IsNotFound(s.api.Get(t.Context(), key, &v1alpha1.Model{})))
}

func TestLauncherThatDeletesNothingHoldsAModelUpForAMinute(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	cannot := errors.New("connection refused")
	s.c.opts.Forget = func(context.Context, *v1alpha1.InferenceServerConfig) error { return cannot }
	require.NoError(t, s.api.Delete(t.Context(), s.model()))
	s.pass(0)
	s.now = s.model().DeletionTimestamp.Time
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.ErrorIs(t, err, cannot)
	assert.Contains(t, s.pass(forgetLimit), "delete InferenceServerConfig llama-default")
}

func TestEntryWhoseNameIsTakenLeavesDemandToTheNext(t *testing.T) {
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "llama-a"}}
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu}, specs: [{name: a}, {name: b}]}`, theirs)
	s.count.Held = 1
	s.pass(0)
	s.pass(conflictPause)
	assert.Equal(t, int32(1), *s.deployment("llama-b").Spec.Replicas)
	require.NoError(t, s.api.Delete(t.Context(), theirs))
	assert.Contains(t, s.pass(takenPause), "create Deployment llama-a")
	s.pass(tellPause)
	assert.Empty(t, s.c.taken)
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAccepted))
}

func TestRemovedEntryGoesWithItsObjects(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, minReplicas: 1}, specs: [{name: a}, {name: b}]}`)
	s.pass(0)
	s.addPod("p", "b", serves)
	s.pass(time.Second)
	assert.Equal(t, "llama", s.pod("p").Labels[podmeta.LabelServes])
	s.change(func(m *v1alpha1.Model) { m.Specs = m.Specs[:1] })
	writes := s.pass(time.Second)
	assert.Contains(t, writes, "patch Pod p")
	assert.Contains(t, writes, "delete Deployment llama-b")
	assert.NotContains(t, writes, "delete InferenceServerConfig llama-b", "its Pods need it still")
	assert.NotContains(t, s.pod("p").Labels, podmeta.LabelServes)
	assert.Contains(t, s.pass(time.Second), "delete InferenceServerConfig llama-b")
	assert.NotContains(t, s.pass(time.Second), "delete InferenceServerConfig llama-b")
}

func TestEditRollsOnlyWhatItConcerns(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu}, specs: [{name: a}, {name: b, args: [--x]}]}`)
	s.pass(0)
	a, b := s.deployment("llama-a").Spec.Template, s.deployment("llama-b").Spec.Template
	s.change(func(m *v1alpha1.Model) { m.Spec.Args = []string{"--y"} })
	assert.Contains(t, s.pass(time.Second), "update InferenceServerConfig llama-a")
	assert.NotEqual(t, a, s.deployment("llama-a").Spec.Template, "it inherits the arguments")
	assert.Equal(t, b, s.deployment("llama-b").Spec.Template, "it has its own")
}

func TestMissingProfileIsOfItsEntryAlone(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m'}, specs: [{name: a, resourceProfile: none}, {name: b, resourceProfile: gpu}]}`)
	s.pass(0)
	s.count.Held = 1
	s.pass(time.Second)
	assert.Equal(t, int32(1), *s.deployment("llama-b").Spec.Replicas)
	m := s.model()
	assert.Contains(t, m.Status.Specs[0].Message, "there is no ResourceProfile none")
	assert.False(t, meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionAccepted))
}

func TestOwnObjectThatTheCacheDoesNotShowIsNobodyElses(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.stale = true
	s.pass(time.Second)
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAccepted))
	s.stale = false
	s.pass(time.Second)
	assert.Empty(t, s.pass(time.Second))
}

func TestLabelsWithoutWhichTheCacheShowsNothingAreRestored(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m', resourceProfile: gpu, minReplicas: 1}}`)
	s.pass(0)
	d := s.deployment("llama-default")
	was := d.Labels
	d.Labels = map[string]string{"mine": "stays", podmeta.LabelModel: "other"}
	require.NoError(t, s.api.Update(t.Context(), d))
	s.pass(time.Second)
	d = s.deployment("llama-default")
	assert.Equal(t, "stays", d.Labels["mine"])
	delete(d.Labels, "mine")
	assert.Equal(t, was, d.Labels)
	assert.Contains(t, <-s.told.Events, "somebody else has edited the labels of Deployment llama-default")
	s.pass(time.Second)
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAccepted))
	assert.Empty(t, s.pass(time.Second))
}

func TestStatusThatTheAPIServerStoresUnchangedHoldsUpNoPass(t *testing.T) {
	s := newSite(t, simple)
	s.pass(0)
	s.same = true
	s.count.Held = 1
	assert.Contains(t, s.pass(time.Second), "status of Model llama")
	assert.Contains(t, s.pass(time.Second), "status of Model llama", "the pass goes on")
}

func TestNothingGoesWhileAFrontDoorIsUnheard(t *testing.T) {
	s := newSite(t, simple)
	s.count.Held = 1
	s.pass(0)
	s.addPod("p", "default", serves)
	s.pass(time.Second)
	s.count, s.unheard = demand.Count{}, true
	s.pass(time.Minute)
	s.pass(time.Minute)
	assert.Equal(t, int32(1), *s.deployment("llama-default").Spec.Replicas)
	s.unheard = false
	s.pass(time.Second)
	assert.Equal(t, int32(0), *s.deployment("llama-default").Spec.Replicas)
}

func TestEntryWhoseLaunchersAreNotDescribedSaysSo(t *testing.T) {
	s := newSite(t, `{spec: {url: 'hf://o/m'}, specs: [{name: wrong, launcherConfigName: simulatd}, {name: right, resourceProfile: gpu}]}`)
	s.pass(0)
	accepted := meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionAccepted)
	require.NotNil(t, accepted)
	assert.Equal(t, metav1.ConditionFalse, accepted.Status)
	assert.Contains(t, accepted.Message, "there is no LauncherConfig simulatd in the namespace ns: create it")
	s.count.Held = 1
	s.pass(time.Second)
	assert.Equal(t, int32(1), *s.deployment("llama-right").Spec.Replicas)
	require.NoError(t, s.api.Create(t.Context(), &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "simulatd"}}))
	s.pass(time.Second)
	s.pass(time.Second) // a status comes once a second
	assert.True(t, meta.IsStatusConditionTrue(s.model().Status.Conditions, v1alpha1.ConditionAccepted))
}
