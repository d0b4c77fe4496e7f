package groups

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const entry = "llama-0-prefill-0-0"

// site is a controller with the ModelServing llama, whose namespace has a LauncherConfig.
type site struct {
	t      *testing.T
	c      *Controller
	api    client.Client
	events *events.FakeRecorder
	now    time.Time
	ports  map[string]int      // of instances, by their ids; nil: no launcher has reported
	writes []string            // creates and deletes
	before func(client.Object) // is called before an object is deleted; nil: nothing is
	keep   bool                // what is deleted stays as it is: the cache does not show it yet
}

// newSite makes a site. refuse says why the API server refuses to create an object; nil: it does not.
func newSite(t *testing.T, change func(*v1alpha1.ModelServing), refuse func(client.Object) error, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	serving := llama()
	if change != nil {
		change(serving)
	}
	s := &site{t: t, events: events.NewFakeRecorder(20), now: now}
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm", UID: "config"}}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, serving, config)...).WithStatusSubresource(serving, &corev1.Pod{}, &v1alpha1.RoleScaler{}).
		WithIndex(&corev1.Pod{}, dualpods.IndexNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} })
	for _, owned := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &appsv1.ControllerRevision{}, &v1alpha1.RoleScaler{}} {
		builder = builder.WithIndex(owned, Index, Indexed)
	}
	s.api = builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuse != nil && refuse(o) != nil {
				return refuse(o)
			}
			s.writes = append(s.writes, "create "+kindOf(o)+" "+o.GetName())
			if o.GetUID() == "" {
				o.SetUID(types.UID(fmt.Sprintf("%s %d", o.GetName(), len(s.writes))))
			}
			return api.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if s.before != nil {
				s.before(o)
			}
			s.writes = append(s.writes, "delete "+kindOf(o)+" "+o.GetName())
			if s.keep {
				return nil
			}
			return api.Delete(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			is := o.DeepCopyObject().(client.Object)
			if err := api.Get(ctx, client.ObjectKeyFromObject(o), is); err == nil && changesNothing(is, o) {
				return nil // as the API server, which makes no other version then
			}
			return api.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	s.c = New(Options{API: s.api, Views: s, Image: "requester", Recorder: s.events, Now: func() time.Time { return s.now }})
	return s
}

// changesNothing reports whether two objects are the same as JSON, in which times have whole seconds.
func changesNothing(a, b client.Object) bool {
	x, err := json.Marshal(a)
	y, other := json.Marshal(b)
	return err == nil && other == nil && bytes.Equal(x, y)
}

// One implements Views.
func (s *site) One(_, id string) (view nodeview.View) {
	if s.ports == nil {
		return view
	}
	view.Connected, view.Instances = true, map[string]launcherapi.Instance{}
	if port, ok := s.ports[id]; ok {
		view.Instances[id] = launcherapi.Instance{InstanceID: id, Port: port}
	}
	return view
}

func (s *site) pass() (reconcile.Result, error) {
	return s.c.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "llama"}})
}

func (s *site) passes(n int) (last reconcile.Result) {
	s.t.Helper()
	for range n {
		var err error
		last, err = s.pass()
		require.NoError(s.t, err)
	}
	return last
}

// read reads an object of the namespace, and reports whether it is there.
func (s *site) read(name string, into client.Object) bool {
	s.t.Helper()
	err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, into)
	require.NoError(s.t, client.IgnoreNotFound(err))
	return err == nil
}

// told takes the next Event, which has the text.
func (s *site) told(text string) {
	s.t.Helper()
	require.NotEmpty(s.t, s.events.Events, "an Event with %q", text)
	assert.Contains(s.t, <-s.events.Events, text)
}

func (s *site) change(how func(*v1alpha1.ModelServing)) {
	s.t.Helper()
	var serving v1alpha1.ModelServing
	require.True(s.t, s.read("llama", &serving))
	how(&serving)
	require.NoError(s.t, s.api.Update(s.t.Context(), &serving))
}

func (s *site) groups() []v1alpha1.ServingGroupStatus {
	s.t.Helper()
	var serving v1alpha1.ModelServing
	require.True(s.t, s.read("llama", &serving))
	return serving.Status.Groups
}

// bind puts an entry on a node with a launcher that has a record of it.
func (s *site) bind(name string) { s.bindTo(name, "launcher", "i") }

func (s *site) bindTo(name, launcher, instance string) {
	s.t.Helper()
	var pod corev1.Pod
	require.True(s.t, s.read(name, &pod))
	pod.Spec.NodeName = "node-1"
	require.NoError(s.t, s.api.Update(s.t.Context(), &pod))
	key, record, err := podmeta.Binding{Instance: instance, RequesterUID: pod.UID, Namespace: "ns", Name: name, GPUs: []string{"GPU-0"}, ServingPort: 8000, SpecHash: "h", Attempt: 1, Since: now}.Encode()
	require.NoError(s.t, err)
	l := launcherPod()
	l.Name, l.UID = launcher, types.UID(launcher)
	if launcher == "second" {
		l.Status.PodIP = "10.0.0.10"
	}
	l.Labels = map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "vllm"}
	l.Annotations = map[string]string{key: record}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hotseat.dev/v1alpha1", Kind: "LauncherConfig", Name: "vllm", UID: "config", Controller: new(true)}}
	require.NoError(s.t, s.api.Create(s.t.Context(), l))
}

func TestEntryGetsASliceThatLeadsToItsLauncher(t *testing.T) {
	s := newSite(t, nil, nil)
	s.passes(1)
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	assert.Equal(t, []string{"create ControllerRevision llama-" + serving.Status.Revision, "create Service " + entry, "create Pod " + entry}, s.writes, "the address is known before the Pod starts")
	var service corev1.Service
	require.True(t, s.read(entry, &service))
	assert.Equal(t, corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true}, service.Spec)

	s.writes = nil
	s.passes(2)
	assert.Empty(t, s.writes, "it has no address yet")
	s.bind(entry)
	s.writes = nil
	s.passes(1)
	var slice discoveryv1.EndpointSlice
	require.True(t, s.read(entry, &slice))
	assert.Equal(t, []any{entry, podmeta.ManagedByServing, discoveryv1.AddressTypeIPv4}, []any{slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy], slice.AddressType})
	require.Len(t, slice.Endpoints, 1)
	assert.Equal(t, []any{"10.0.0.9", "launcher", "node-1"}, []any{slice.Endpoints[0].Addresses[0], slice.Endpoints[0].TargetRef.Name, *slice.Endpoints[0].NodeName})
	assert.Empty(t, slice.Ports, "the launcher has not said them")

	s.ports = map[string]int{"i": 40000}
	s.passes(1)
	require.True(t, s.read(entry, &slice))
	require.Len(t, slice.Ports, 1)
	assert.Equal(t, []any{"http", int32(40000)}, []any{*slice.Ports[0].Name, *slice.Ports[0].Port})
	s.ports = nil
	s.passes(1)
	require.True(t, s.read(entry, &slice))
	assert.Len(t, slice.Ports, 1, "a later process has not heard the launcher yet")
	assert.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "llama"}}}, OnNode(t.Context(), s.api, "node-1"))
	assert.Empty(t, OnNode(t.Context(), s.api, "node-2"))

	s.writes = nil
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(0)) })
	s.passes(3)
	assert.Equal(t, []string{"delete Pod " + entry, "delete Service " + entry, "delete EndpointSlice " + entry}, s.writes)
	assert.Empty(t, s.groups())
}

func TestGroupsAndReplicasGoInReverseOrder(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas, m.Spec.Template.Roles[0].Replicas = new(int32(3)), new(int32(2))
		m.Spec.Template.Roles = append(m.Spec.Template.Roles, v1alpha1.ServingRole{Name: "decode", Replicas: new(int32(1)), EntryTemplate: &runtime.RawExtension{Raw: []byte(plainEntry)}})
	}, nil)
	s.passes(1)
	s.writes = nil
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas, m.Spec.Template.Roles[0].Replicas = new(int32(1)), new(int32(1))
	})
	s.passes(1)
	assert.Equal(t, []string{
		"delete Pod llama-2-decode-0-0", "delete Pod llama-2-prefill-1-0", "delete Pod llama-2-prefill-0-0",
		"delete Pod llama-1-decode-0-0", "delete Pod llama-1-prefill-1-0", "delete Pod llama-1-prefill-0-0",
		"delete Pod llama-0-prefill-1-0",
	}, s.writes)
	for _, g := range s.groups() {
		assert.Equal(t, v1alpha1.GroupScaling, g.State, g.Name)
	}
}

func TestPodOfAnotherOwnerIsLeftAlone(t *testing.T) {
	theirs := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: entry, UID: "theirs", Labels: place{serving: "llama", role: "prefill"}.labels()}}
	s := newSite(t, nil, nil, theirs)
	result := s.passes(2)
	assert.Equal(t, takenPause, result.RequeueAfter)
	assert.Equal(t, []v1alpha1.ServingGroupStatus{{
		Name: "llama-0", State: v1alpha1.GroupFailed, Revision: hash(content(&llama().Spec.Template)), Reason: v1alpha1.ReasonNameTaken, RoleReplicas: map[string]int32{"prefill": 1},
		Message: "Pod " + entry + " exists and was not created for this ModelServing: delete it, or give the ModelServing another name",
	}}, s.groups())
	s.told("Warning NameTaken llama-0: Pod " + entry)
	assert.Empty(t, s.events.Events, "it is told once")

	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(0)) })
	s.passes(2)
	var pod corev1.Pod
	require.True(t, s.read(entry, &pod), "labels make nobody the owner")
	assert.Equal(t, theirs.UID, pod.UID)
}

func TestModelServingOfTheSameNameAdoptsNothing(t *testing.T) {
	s := newSite(t, nil, nil)
	s.passes(1)
	var first, second corev1.Pod
	require.True(t, s.read(entry, &first))
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	require.NoError(t, s.api.Delete(t.Context(), &serving))
	again := llama()
	again.UID = "s2"
	require.NoError(t, s.api.Create(t.Context(), again))

	s.now = s.now.Add(time.Hour)
	s.passes(2)
	assert.Equal(t, []string{string(v1alpha1.GroupProgressing), v1alpha1.ReasonWaitsForDeletion}, []string{string(s.groups()[0].State), s.groups()[0].Reason})
	assert.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "llama"}}}, servingOf(t.Context(), &first), "the end of the earlier Pod begins a pass of the later ModelServing")

	// Kubernetes deletes what the first one owned.
	for _, o := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &appsv1.ControllerRevision{}} {
		require.NoError(t, s.api.DeleteAllOf(t.Context(), o, client.InNamespace("ns")))
	}
	s.passes(2)
	require.True(t, s.read(entry, &second))
	assert.EqualValues(t, "s2", podmeta.ServingOf(&second).UID)
	assert.NotEqual(t, podmeta.ServingOf(&first).UID, podmeta.ServingOf(&second).UID)
}

func TestRefusedPodIsToldAndTheOthersAreMade(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(2)) }, func(o client.Object) error {
		if _, is := o.(*corev1.Pod); is && o.GetName() == entry {
			return apierrors.NewForbidden(corev1.Resource("pods"), entry, errors.New("exceeded quota"))
		}
		return nil
	})
	_, err := s.pass()
	require.ErrorContains(t, err, "exceeded quota", "it is tried again with a growing pause")
	groups := s.groups()
	assert.Equal(t, []any{v1alpha1.GroupFailed, v1alpha1.ReasonRefused, v1alpha1.GroupProgressing}, []any{groups[0].State, groups[0].Reason, groups[1].State})
	assert.Contains(t, groups[0].Message, "cannot create Pod "+entry)
	s.told("Warning Refused llama-0")
	assert.True(t, s.read("llama-1-prefill-0-0", &corev1.Pod{}))
}

func TestWrongTemplateMakesNothing(t *testing.T) {
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate.Raw = []byte(`{"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}`)
	}, nil)
	s.passes(2)
	assert.False(t, s.read(entry, &corev1.Pod{}))
	assert.Equal(t, v1alpha1.ReasonMalformedTemplate, s.groups()[0].Reason)
	s.told("Warning MalformedTemplate spec.template.roles[prefill].entryTemplate.metadata.annotations: do not say which server runs")
	assert.Empty(t, s.events.Events)
}

func TestObjectThatTheCacheDoesNotShowIsNotTakenForAnothers(t *testing.T) {
	s := newSite(t, nil, nil)
	slice := func() *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: entry}}
	}
	require.NoError(t, s.c.create(t.Context(), slice()))
	require.NoError(t, s.c.create(t.Context(), slice()), "this process has made it")
	assert.True(t, s.c.unheard("EndpointSlice", "ns", entry))
	s.now = s.now.Add(hearLimit)
	assert.False(t, s.c.unheard("EndpointSlice", "ns", entry))
	assert.True(t, isTaken(s.c.create(t.Context(), slice())), "the cache has shown none of ours since")

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: entry}}
	require.NoError(t, s.api.Create(t.Context(), pod.DeepCopy()))
	assert.True(t, dualpods.IsStale(s.c.create(t.Context(), pod)), "the next pass sees whose it is")
}

func TestFrozenProcessWritesNothing(t *testing.T) {
	s := newSite(t, nil, nil)
	s.c.opts.Leads = func() bool { return false }
	_, err := s.pass()
	require.ErrorIs(t, err, dualpods.ErrNotLeading)
	assert.Empty(t, s.writes)
}
