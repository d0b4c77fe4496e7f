package modelvolume

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// site is a controller with a fake API server.
type site struct {
	t      *testing.T
	c      *Controller
	api    client.Client
	events *events.FakeRecorder
	now    time.Time
}

func newSite(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	s := &site{t: t, events: events.NewFakeRecorder(9)}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, Index, func(o client.Object) []string { return Indexed(o.(*corev1.Pod)) }).Build()
	s.c = &Controller{API: s.api, Recorder: s.events, Now: func() time.Time { return s.now }}
	return s
}

func (s *site) pass() {
	s.t.Helper()
	_, err := s.c.Reconcile(s.t.Context(), reconcile.Request{})
	require.NoError(s.t, err)
}

// there reports whether the volume and the claim exist.
func (s *site) there() (volume, claim bool) {
	s.t.Helper()
	is := func(key client.ObjectKey, o client.Object) bool {
		err := s.api.Get(s.t.Context(), key, o)
		require.NoError(s.t, client.IgnoreNotFound(err))
		return err == nil
	}
	return is(client.ObjectKey{Name: volumeName(here)}, &corev1.PersistentVolume{}),
		is(client.ObjectKey{Namespace: here.Namespace, Name: ClaimOf(here.Cache)}, &corev1.PersistentVolumeClaim{})
}

func (s *site) announced() (all []string) {
	for {
		select {
		case e := <-s.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// objects returns the objects of a world without volumes: the cache, and the others.
func objects() (cache *v1alpha1.ClusterModelCache, others []client.Object) {
	w := world()
	for name, group := range w.Groups {
		group.Name = name
		others = append(others, group)
	}
	return w.cache(), append(others, &w.Pods[0])
}

func TestVolumeAndClaimComeWithTheCacheAndGoWithTheLastPod(t *testing.T) {
	cache, others := objects()
	s := newSite(t, others...)
	s.pass()
	s.pass()
	volume, claim := s.there()
	assert.False(t, volume || claim)
	assert.Equal(t, []string{"Warning NoSuchModelCache there is no ClusterModelCache llama.70b, whose model the claim hotseat-model-llama.70b would hold: create it, or correct the name of the claim"}, s.announced(), "told once")

	require.NoError(t, s.api.Create(t.Context(), cache))
	s.pass()
	volume, claim = s.there()
	assert.True(t, volume && claim)
	s.pass()
	assert.Empty(t, s.announced())

	reader := pod("reader", here.Namespace)
	require.NoError(t, s.api.Delete(t.Context(), &reader))
	s.pass()
	volume, claim = s.there()
	assert.True(t, volume && !claim, "the claim first")
	s.pass()
	volume, _ = s.there()
	assert.False(t, volume)
}

func TestAClaimIsThereForTheNextPodWhileOneIsThereThatHasFinished(t *testing.T) {
	cache, others := objects()
	s := newSite(t, append(others[:2], cache)...) // no Pod
	ended := pod("ended", here.Namespace, here.Cache)
	ended.Spec.NodeName, ended.Status.Phase = "n1", corev1.PodRunning
	require.NoError(t, s.api.Create(t.Context(), &ended))
	s.pass()
	ended.Status.Phase = corev1.PodSucceeded
	require.NoError(t, s.api.Update(t.Context(), &ended))
	s.pass()
	volume, claim := s.there()
	assert.True(t, volume && claim)
	require.NoError(t, s.api.Delete(t.Context(), &ended))
	s.pass()
	s.pass()
	volume, claim = s.there()
	assert.False(t, volume || claim)
}

func TestAClaimOfThatNameThatSomebodyMadeIsLeftAndTold(t *testing.T) {
	cache, others := objects()
	theirs := &corev1.PersistentVolumeClaim{}
	theirs.Namespace, theirs.Name = here.Namespace, ClaimOf(here.Cache)
	s := newSite(t, append(others, cache, theirs)...)
	// The controller's cache holds only claims with its label.
	s.c.API = labelled{s.api}
	result, err := s.c.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err, "the cache may be behind")
	s.now = s.now.Add(result.RequeueAfter)
	_, err = s.c.Reconcile(t.Context(), reconcile.Request{})
	require.ErrorContains(t, err, "cannot create PersistentVolumeClaim team/hotseat-model-llama.70b: it exists and belongs to another owner")
	assert.True(t, apierrors.IsAlreadyExists(err))
	told := s.announced()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning ClaimNotMade cannot create PersistentVolumeClaim team/hotseat-model-llama.70b: it exists")
	_, claim := s.there()
	assert.True(t, claim)
}

func TestWhatSomebodyLabelledIsNotTakenForOurs(t *testing.T) {
	cache, others := objects()
	w := world()
	w.made()
	theirs := w.Claims[here]
	theirs.Name = "my-own"
	s := newSite(t, append(others[:2], cache, theirs)...) // no Pod
	s.pass()
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
}

// labelled lists only claims with the label of models, as the controller's cache does.
type labelled struct{ client.Client }

func (l labelled) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if _, claims := into.(*corev1.PersistentVolumeClaimList); claims {
		opts = append(opts, client.HasLabels{podmeta.LabelModelVolume})
	}
	return l.Client.List(ctx, into, opts...)
}

func TestAControllerOfOneNamespaceSaysThatItMakesNoClaims(t *testing.T) {
	pod := func(name string, claims ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		for _, claim := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
		return p
	}
	own := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hotseat-model-own"}}
	s := newSite(t, pod("waits", "hotseat-model-m"), pod("has", "hotseat-model-own", "other"), own)
	s.c.Namespace = "ns"
	s.pass()
	s.pass()
	assert.Equal(t, []string{"Warning OneNamespace the claim hotseat-model-m is not created: this release of hotseat watches only namespace ns and ignores ClusterModelCaches"}, s.announced())
	var claims corev1.PersistentVolumeClaimList
	require.NoError(t, s.api.List(t.Context(), &claims))
	assert.Len(t, claims.Items, 1)
}
