package pool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	inference "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

var key = types.NamespacedName{Namespace: "ns", Name: "llama"}

// site is a controller with a Model that asks for an InferencePool.
type site struct {
	t       *testing.T
	c       *Controller
	api     client.Client
	lacks   bool  // the cluster has no CRD
	refuses error // what creations fail with
}

func newSite(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(v1alpha1.AddToScheme(scheme), inference.Install(scheme)))
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "model", Generation: 1, Finalizers: []string{podmeta.FinalizerModel}}}
	m.Spec.Gateway = &v1alpha1.ModelGateway{InferencePool: &v1alpha1.ModelInferencePool{EndpointPickerRef: inference.EndpointPickerRef{Name: "picker", Kind: "Service", Port: &inference.Port{Number: 9002}}}}
	s := &site{t: t}
	none := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: inference.GroupName, Kind: "InferencePool"}, SearchedVersions: []string{"v1"}}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, m)...).WithStatusSubresource(m).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*inference.InferencePool); ok && s.lacks {
				return none
			}
			return api.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if s.refuses != nil {
				return s.refuses
			}
			return api.Create(ctx, o, opts...)
		},
	}).Build()
	s.c = New(Options{API: s.api, Live: s.api})
	return s
}

// pass runs a pass. It returns when to look again, and the condition; nil: there is none.
func (s *site) pass() (again time.Duration, is *metav1.Condition) {
	s.t.Helper()
	result, err := s.c.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(s.t, err)
	return result.RequeueAfter, meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionInferencePool)
}

func (s *site) model() *v1alpha1.Model {
	s.t.Helper()
	var m v1alpha1.Model
	require.NoError(s.t, s.api.Get(s.t.Context(), key, &m))
	return &m
}

func (s *site) change(edit func(*v1alpha1.ModelSpec)) {
	s.t.Helper()
	m := s.model()
	edit(&m.Spec)
	require.NoError(s.t, s.api.Update(s.t.Context(), m))
}

// pool returns the InferencePool of the Model's name; nil: there is none.
func (s *site) pool() *inference.InferencePool {
	s.t.Helper()
	var p inference.InferencePool
	err := s.api.Get(s.t.Context(), key, &p)
	require.NoError(s.t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &p
}

func TestInferencePoolIsKeptAsTheModelAsks(t *testing.T) {
	s := newSite(t)
	again, is := s.pass()
	assert.Equal(t, restPause, again)
	assert.Equal(t, []string{"True", v1alpha1.ReasonPoolKept}, []string{string(is.Status), is.Reason})
	p := s.pool()
	require.NotNil(t, p)
	assert.Equal(t, inference.InferencePoolSpec{
		Selector:          inference.LabelSelector{MatchLabels: map[inference.LabelKey]inference.LabelValue{"hotseat.dev/model": "llama", "hotseat.dev/serves": "llama"}},
		TargetPorts:       []inference.Port{{Number: 8000}},
		EndpointPickerRef: &inference.EndpointPickerRef{Name: "picker", Kind: "Service", Port: &inference.Port{Number: 9002}},
	}, p.Spec)
	assert.True(t, metav1.IsControlledBy(p, s.model()))
	told := s.model().ResourceVersion
	s.pass()
	assert.Equal(t, []string{p.ResourceVersion, told}, []string{s.pool().ResourceVersion, s.model().ResourceVersion}, "a pass at rest writes nothing")

	p.Spec.AppProtocol, p.Spec.Selector.MatchLabels = inference.AppProtocolHTTP, nil // somebody has edited it
	require.NoError(t, s.api.Update(t.Context(), p))
	s.change(func(spec *v1alpha1.ModelSpec) { spec.Gateway.InferencePool.EndpointPickerRef.Name = "other" })
	s.pass()
	assert.Equal(t, inference.ObjectName("other"), s.pool().Spec.EndpointPickerRef.Name)
	assert.Len(t, s.pool().Spec.Selector.MatchLabels, 2)
	assert.Equal(t, inference.AppProtocolHTTP, s.pool().Spec.AppProtocol, "it is not the Model's")
}

func TestInferencePoolGoesWhenTheModelAsksForNone(t *testing.T) {
	s := newSite(t)
	s.pass()
	s.change(func(spec *v1alpha1.ModelSpec) { spec.Gateway = nil })
	again, is := s.pass()
	assert.Zero(t, again)
	assert.Nil(t, is)
	assert.Nil(t, s.pool())
	s.pass()
}

func TestInferencePoolOfAKilledControllerIsKnownToTheNext(t *testing.T) {
	s := newSite(t)
	killed := errors.New("killed")
	s.refuses = killed
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.ErrorIs(t, err, killed)
	is := meta.FindStatusCondition(s.model().Status.Conditions, v1alpha1.ConditionInferencePool)
	require.NotNil(t, is, "the condition comes before the object")
	assert.Equal(t, v1alpha1.ReasonPoolPending, is.Reason)

	s.refuses = nil
	require.NoError(t, s.api.Create(t.Context(), newPool(s.model()))) // what the killed controller may have done
	s.change(func(spec *v1alpha1.ModelSpec) { spec.Gateway = nil })
	_, is = s.pass()
	assert.Nil(t, is)
	assert.Nil(t, s.pool())
}

func TestInferencePoolOfOthersIsToldAndLeftAlone(t *testing.T) {
	theirs := &inference.InferencePool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{"of": "others"}}}
	s := newSite(t, theirs)
	before := s.pool()
	again, is := s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, []string{"False", v1alpha1.ReasonNameTaken}, []string{string(is.Status), is.Reason})
	assert.Contains(t, is.Message, "InferencePool llama is not of this Model, and is left alone: delete it")
	assert.Equal(t, before, s.pool())

	s.change(func(spec *v1alpha1.ModelSpec) { spec.Gateway = nil })
	_, is = s.pass()
	assert.Nil(t, is)
	assert.Equal(t, before, s.pool(), "it stays when the field goes")
}

func TestMissingDefinitionAndRefusalAreTold(t *testing.T) {
	s := newSite(t)
	s.lacks = true
	again, is := s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, []string{"False", v1alpha1.ReasonNoInferencePool}, []string{string(is.Status), is.Reason})
	assert.Contains(t, is.Message, "the cluster has no InferencePools of the version inference.networking.k8s.io/v1: install their CRD")

	s.lacks = false
	s.refuses = apierrors.NewNotFound(schema.GroupResource{Group: inference.GroupName, Resource: "inferencepools"}, "")
	_, is = s.pass()
	assert.Equal(t, v1alpha1.ReasonNoInferencePool, is.Reason, "the CRD was deleted meanwhile")
	s.refuses = apierrors.NewForbidden(schema.GroupResource{Resource: "inferencepools"}, "llama", errors.New("quota"))
	again, is = s.pass()
	assert.Equal(t, lackPause, again)
	assert.Equal(t, v1alpha1.ReasonRefused, is.Reason)
	assert.Contains(t, is.Message, "cannot create InferencePool llama")
	s.refuses = nil
	_, is = s.pass()
	assert.Equal(t, metav1.ConditionTrue, is.Status)

	s.lacks = true
	s.change(func(spec *v1alpha1.ModelSpec) { spec.Gateway = nil })
	_, is = s.pass()
	assert.Nil(t, is, "a Model that asks for none needs no CRD")
}
