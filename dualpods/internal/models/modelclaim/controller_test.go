package modelclaim

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// place is a controller with one new ModelCache, m in namespace ns.
type place struct {
	t       *testing.T
	c       *Controller
	api     client.Client
	now     time.Time
	secret  *corev1.Secret         // nil: there is none
	account *corev1.ServiceAccount // nil: there is none
	events  *events.FakeRecorder
}

func newPlace(t *testing.T, change func(*v1alpha1.ModelCache), faults interceptor.Funcs) *place {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	cache := world().Cache
	cache.Finalizers = nil
	if change != nil {
		change(cache)
	}
	p := &place{t: t, now: now, events: events.NewFakeRecorder(99)}
	p.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cache).WithStatusSubresource(cache, &batchv1.Job{}, &corev1.Pod{}).WithInterceptorFuncs(faults).
		WithIndex(&corev1.Pod{}, IndexClaim, func(o client.Object) []string { return IndexedClaims(o.(*corev1.Pod)) }).Build()
	p.c = New(Options{
		API: p.api, Launchers: p, Image: "launcher", Recorder: p.events, Now: func() time.Time { return p.now },
		Class: func(context.Context, string) (bool, error) { return true, nil },
		Credentials: sourcesecret.Reader{
			Secret: func(_ context.Context, key client.ObjectKey) (*corev1.Secret, error) {
				assert.Equal(t, client.ObjectKey{Namespace: "ns", Name: "s"}, key)
				if p.secret == nil {
					return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
				}
				return p.secret, nil
			},
			Account: func(_ context.Context, key client.ObjectKey) (*corev1.ServiceAccount, error) {
				assert.Equal(t, client.ObjectKey{Namespace: "ns", Name: "reader"}, key)
				if p.account == nil {
					return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
				}
				return p.account, nil
			},
		},
	})
	return p
}

// View returns two instances, only the first of which reads from the claim.
func (p *place) Pick(_ string, keep func(id string, i launcherapi.Instance) bool) nodeview.View {
	view := nodeview.View{Instances: map[string]launcherapi.Instance{
		"i1": {InstanceID: "i1", ModelPath: "/var/lib/hotseat/claims/m/hotseat-models/models/id/files"}, "i2": {InstanceID: "i2", ModelPath: "/var/lib/hotseat/claims/mm/x"},
	}}
	return view.Pick(keep)
}

// passes runs n passes and returns the result of the last one.
func (p *place) passes(n int) (last reconcile.Result) {
	p.t.Helper()
	for range n {
		var err error
		last, err = p.c.Reconcile(p.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "m"}})
		require.NoError(p.t, err)
	}
	return last
}

func (p *place) there(o client.Object, name string) bool {
	p.t.Helper()
	err := p.api.Get(p.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, o)
	require.NoError(p.t, client.IgnoreNotFound(err))
	return err == nil
}

func (p *place) condition(kind string) *metav1.Condition {
	p.t.Helper()
	var c v1alpha1.ModelCache
	require.True(p.t, p.there(&c, "m"))
	return meta.FindStatusCondition(c.Status.Conditions, kind)
}

// worker creates a Pod of the Job that has ended with a message, and ends the Job.
func (p *place) worker(name, message string, kind batchv1.JobConditionType) {
	p.t.Helper()
	var job batchv1.Job
	require.True(p.t, p.there(&job, "m-fetch"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
	require.NoError(p.t, p.api.Create(p.t.Context(), pod))
	job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: p.now}}}
	require.NoError(p.t, p.api.Status().Update(p.t.Context(), &job))
}

func (p *place) said() (all []string) {
	for len(p.events.Events) > 0 {
		all = append(all, <-p.events.Events)
	}
	return all
}

func TestAModelIsFetchedOntoAClaimThatIsMadeAndBothGoWithTheModelCache(t *testing.T) {
	p := newPlace(t, nil, interceptor.Funcs{})
	p.passes(3) // the finalizer, the claim, the Job
	var job batchv1.Job
	require.True(t, p.there(&job, "m-fetch"))
	p.passes(3)
	assert.Empty(t, p.said(), "what passes by itself makes no Events")

	p.worker("w", `{"id":"id","revision":"r","bytes":1048576,"lacks":true}`, batchv1.JobComplete)
	p.passes(1)
	assert.Equal(t, v1alpha1.ReasonWhole, p.condition(v1alpha1.ConditionAvailable).Reason)
	require.True(t, p.there(&job, "m-fetch"), "it goes once its outcome stands in the status")
	p.passes(2)
	assert.False(t, p.there(&job, "m-fetch"))
	assert.Equal(t, []string{"Normal Whole PersistentVolumeClaim m has the model, revision r"}, p.said())

	launcher := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", Labels: map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher}}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{volumeOf("v", "m")}}}
	require.NoError(t, p.api.Create(t.Context(), launcher))
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	assert.True(t, c.Status.Lacks)
	require.NoError(t, p.api.Delete(t.Context(), &c))
	p.passes(3)
	blocked := p.condition(v1alpha1.ConditionDeletionBlocked)
	assert.Equal(t, metav1.ConditionTrue, blocked.Status)
	assert.Contains(t, blocked.Message, "Pod l, inference server i1 of l: delete them")
	require.Len(t, p.said(), 1)
	require.True(t, p.there(&corev1.PersistentVolumeClaim{}, "m"))
	launcher.Status.Phase = corev1.PodSucceeded
	require.NoError(t, p.api.Status().Update(t.Context(), launcher))
	p.passes(3)
	assert.False(t, p.there(&corev1.PersistentVolumeClaim{}, "m"))
	assert.False(t, p.there(&c, "m"))
}

// kept adds the finalizer by which Kubernetes keeps a claim while Pods exist that were on a
// node with it.
func (p *place) kept() {
	p.t.Helper()
	var claim corev1.PersistentVolumeClaim
	require.True(p.t, p.there(&claim, "m"))
	claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
	require.NoError(p.t, p.api.Update(p.t.Context(), &claim))
}

func TestWhoseJobIsDoneDoesNotKeepAClaimThatIsDeleted(t *testing.T) {
	p := newPlace(t, nil, interceptor.Funcs{})
	p.passes(3)
	p.kept()
	var claim corev1.PersistentVolumeClaim
	require.True(t, p.there(&claim, "m"))
	require.NoError(t, p.api.Delete(t.Context(), &claim))
	p.worker("w", `{"id":"id","revision":"r","bytes":1}`, batchv1.JobComplete)
	p.passes(1)
	assert.False(t, p.there(&batchv1.Job{}, "m-fetch"))
	assert.Equal(t, v1alpha1.ReasonClaimMissing, p.condition(v1alpha1.ConditionAvailable).Reason)
}

func TestPodsThatHaveFinishedAndKeepTheClaimOfADeletedModelCacheAreNamed(t *testing.T) {
	p := newPlace(t, nil, interceptor.Funcs{})
	p.passes(2)
	p.kept()
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}, Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{volumeOf("v", "m")}}}
	ended.Status.Phase = corev1.PodSucceeded
	require.NoError(t, p.api.Create(t.Context(), ended))
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	require.NoError(t, p.api.Delete(t.Context(), &c))
	p.passes(3)
	blocked := p.condition(v1alpha1.ConditionDeletionBlocked)
	assert.Equal(t, metav1.ConditionTrue, blocked.Status)
	assert.Contains(t, blocked.Message, "are gone: delete Pod e")
}

func TestAClaimThatIsRetainedIsNobodysWhenItsModelCacheHasGone(t *testing.T) {
	p := newPlace(t, func(c *v1alpha1.ModelCache) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }, interceptor.Funcs{})
	p.passes(3)
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	require.NoError(t, p.api.Delete(t.Context(), &c))
	p.passes(4)
	assert.False(t, p.there(&c, "m"))
	assert.False(t, p.there(&batchv1.Job{}, "m-fetch"))
	var claim corev1.PersistentVolumeClaim
	require.True(t, p.there(&claim, "m"))
	assert.Empty(t, claim.Labels)
	assert.Empty(t, claim.OwnerReferences)
}

func TestASecretThatIsMadeOrMendedIsTriedAtOnce(t *testing.T) {
	p := newPlace(t, func(c *v1alpha1.ModelCache) {
		c.Spec.Credentials = &v1alpha1.ModelClaimCredentials{SecretRef: &v1alpha1.SecretReference{Name: "s"}}
	}, interceptor.Funcs{})
	p.passes(3)
	accepted := func() string { return p.condition(v1alpha1.ConditionCredentialsAccepted).Reason }
	assert.Equal(t, v1alpha1.ReasonSecretMissing, accepted())
	p.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Data: map[string][]byte{"TOKEN": []byte("x")}}
	p.passes(1)
	assert.Equal(t, v1alpha1.ReasonSecretInvalid, accepted())
	p.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "2"}, Data: map[string][]byte{"HF_TOKEN": []byte("wrong")}}
	p.passes(2)
	assert.Equal(t, v1alpha1.ReasonSecretRead, accepted())
	p.worker("w", `{"error":{"reason":"AccessDenied","detail":"the source refuses"}}`, batchv1.JobFailed)
	assert.Equal(t, firstPause, p.passes(1).RequeueAfter)
	assert.Equal(t, v1alpha1.ReasonAccessDenied, accepted())
	p.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}, Data: map[string][]byte{"HF_TOKEN": []byte("right")}}
	p.passes(2)
	var job batchv1.Job
	require.True(t, p.there(&job, "m-fetch"))
	assert.Empty(t, job.Status.Conditions, "it is another one")
	assert.EqualValues(t, 1, triesOf(&job))
	assert.Len(t, p.said(), 3)
	text, err := job.Marshal()
	require.NoError(t, err)
	assert.NotContains(t, string(text), "right")
}

func TestASecretThatCannotBeReadIsToldEndsNoJobAndKeepsNothingThatIsDeleted(t *testing.T) {
	p := newPlace(t, func(c *v1alpha1.ModelCache) {
		c.Spec.Credentials = &v1alpha1.ModelClaimCredentials{SecretRef: &v1alpha1.SecretReference{Name: "s"}}
	}, interceptor.Funcs{})
	p.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Data: map[string][]byte{"HF_TOKEN": []byte("right")}}
	p.passes(4)
	refused := errors.New("forbidden")
	p.c.opts.Credentials.Secret = func(context.Context, client.ObjectKey) (*corev1.Secret, error) { return nil, refused }
	pass := func() {
		t.Helper()
		_, err := p.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "m"}})
		require.ErrorIs(t, err, refused, "it is tried again")
	}
	pass()
	assert.Contains(t, p.condition(v1alpha1.ConditionCredentialsAccepted).Message, "cannot read Secret ns/s: forbidden")
	var job batchv1.Job
	require.True(t, p.there(&job, "m-fetch"))
	assert.True(t, job.DeletionTimestamp.IsZero())
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	require.NoError(t, p.api.Delete(t.Context(), &c))
	for range 3 {
		pass()
	}
	p.passes(1)
	assert.False(t, p.there(&c, "m"))
}

func TestTheJobRunsAsTheServiceAccountAndIsShownTheSecretThatThisLists(t *testing.T) {
	p := newPlace(t, func(c *v1alpha1.ModelCache) {
		c.Spec.Credentials = &v1alpha1.ModelClaimCredentials{ServiceAccountName: "reader"}
	}, interceptor.Funcs{})
	accepted := func() string { return p.condition(v1alpha1.ConditionCredentialsAccepted).Reason }
	p.passes(3)
	assert.Equal(t, v1alpha1.ReasonAccountMissing, accepted())
	assert.Contains(t, p.said(), "Warning ServiceAccountMissing there is no ServiceAccount ns/reader, which spec.credentials.serviceAccountName names: create it, or name another one of that namespace")
	assert.False(t, p.there(&batchv1.Job{}, "m-fetch"))

	p.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	p.passes(1)
	assert.Equal(t, v1alpha1.ReasonAccountUsed, accepted())
	var job batchv1.Job
	require.True(t, p.there(&job, "m-fetch"))
	assert.Equal(t, "reader", job.Spec.Template.Spec.ServiceAccountName)
	assert.Empty(t, job.Spec.Template.Spec.Containers[0].Env)
	p.worker("w", `{"error":{"reason":"AccessDenied","detail":"the source refuses"}}`, batchv1.JobFailed)
	assert.Equal(t, firstPause, p.passes(1).RequeueAfter)
	assert.Equal(t, v1alpha1.ReasonAccessDenied, accepted())
	assert.Contains(t, p.condition(v1alpha1.ConditionCredentialsAccepted).Message, "lists no Secret with HF_TOKEN: the Job uses the identity of that account; to use a Secret, list one with the credentials")

	p.account.ResourceVersion = "2" // as after a change of a cloud provider's annotation
	p.passes(2)
	require.True(t, p.there(&job, "m-fetch"))
	assert.Empty(t, job.Status.Conditions, "another Job tries at once")

	p.account.Secrets = []corev1.ObjectReference{{Name: "s"}}
	p.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Data: map[string][]byte{"HF_TOKEN": []byte("right")}}
	p.passes(2)
	assert.Equal(t, v1alpha1.ReasonSecretRead, accepted())
	require.True(t, p.there(&job, "m-fetch"))
	assert.Equal(t, "reader", job.Spec.Template.Spec.ServiceAccountName)
	assert.Equal(t, "s", job.Spec.Template.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef.Name)
}

func TestWhatTheAPIServerRefusesIsToldAndHoldsNothingElseUp(t *testing.T) {
	refuse := false
	p := newPlace(t, nil, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if _, claim := o.(*corev1.PersistentVolumeClaim); claim && refuse {
			return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("only dynamically provisioned pvc can be resized"))
		}
		return c.Patch(ctx, o, patch, opts...)
	}})
	p.passes(2)
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	c.Spec.ClaimTemplate.Storage, refuse = resource.MustParse("20Gi"), true
	require.NoError(t, p.api.Update(t.Context(), &c))
	p.passes(1)
	assert.Contains(t, p.condition(v1alpha1.ConditionDegraded).Message, "only dynamically provisioned pvc can be resized")
	assert.True(t, p.there(&batchv1.Job{}, "m-fetch"), "the model may fit all the same")
}

func TestWhatTheAPIServerDoesNotLetBeMadeIsNotUnderWay(t *testing.T) {
	for what, c := range map[string]struct {
		kind    client.Object
		refused *apierrors.StatusError
		reason  string
	}{
		"a claim above a quota": {&corev1.PersistentVolumeClaim{}, apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "m", errors.New("exceeded quota: q")), v1alpha1.ReasonClaimRefused},
		"a Job that is none":    {&batchv1.Job{}, apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "m-fetch", nil), v1alpha1.ReasonJobRefused},
	} {
		t.Run(what, func(t *testing.T) {
			refuses := true
			p := newPlace(t, nil, interceptor.Funcs{Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if reflect.TypeOf(o) == reflect.TypeOf(c.kind) && refuses {
					return c.refused
				}
				return api.Create(ctx, o, opts...)
			}})
			for range 3 {
				_, err := p.c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "m"}})
				assert.True(t, err == nil || errors.Is(err, c.refused), "it is tried again: %v", err)
			}
			for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionDegraded} {
				is := p.condition(kind)
				assert.Equal(t, c.reason, is.Reason)
				assert.Equal(t, 1, strings.Count(is.Message, "cannot create"), is.Message)
			}
			assert.Equal(t, metav1.ConditionFalse, p.condition(v1alpha1.ConditionProgressing).Status)
			assert.Equal(t, v1alpha1.ReasonNotAsked, p.condition(v1alpha1.ConditionResolved).Reason)
			refuses = false
			p.passes(3)
			assert.True(t, p.there(&batchv1.Job{}, "m-fetch"))
			assert.NotEqual(t, c.reason, p.condition(v1alpha1.ConditionAvailable).Reason)
			assert.Equal(t, metav1.ConditionFalse, p.condition(v1alpha1.ConditionDegraded).Status)
		})
	}
}

func TestAJobOfSomebodyElsesIsLeftAlone(t *testing.T) {
	p := newPlace(t, nil, interceptor.Funcs{})
	require.NoError(t, p.api.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m-fetch"}}))
	assert.Equal(t, takenPause, p.passes(3).RequeueAfter)
	available := p.condition(v1alpha1.ConditionAvailable)
	assert.Equal(t, v1alpha1.ReasonNameTaken, available.Reason)
	assert.Contains(t, available.Message, "Job m-fetch exists and was not created for this ModelCache")
	assert.Equal(t, metav1.ConditionFalse, p.condition(v1alpha1.ConditionProgressing).Status)
}

func TestAJobThatWasMadeAndIsNotHeardOfYetIsNoOtherOnes(t *testing.T) {
	behind := false
	p := newPlace(t, nil, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, job := o.(*batchv1.Job); job && behind {
			return apierrors.NewNotFound(batchv1.Resource("jobs"), key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	p.passes(3)
	behind = true
	p.passes(2)
	assert.Equal(t, v1alpha1.ReasonDownloading, p.condition(v1alpha1.ConditionAvailable).Reason)
}

func TestAModelCacheWaitsUntilItsClaimIsHeardOfThatWasJustMade(t *testing.T) {
	for what, hears := range map[string]bool{"it is heard of": true, "it never is, as of one that somebody has deleted at once": false} {
		t.Run(what, func(t *testing.T) {
			behind := false
			p := newPlace(t, func(c *v1alpha1.ModelCache) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, claim := o.(*corev1.PersistentVolumeClaim); claim && behind {
						return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), key.Name)
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			p.passes(1)
			behind = true
			p.passes(1)
			var c v1alpha1.ModelCache
			require.True(t, p.there(&c, "m"))
			require.NoError(t, p.api.Delete(t.Context(), &c))
			assert.Equal(t, hearLimit, p.passes(2).RequeueAfter)
			require.True(t, p.there(&c, "m"))
			if hears {
				behind = false
			} else {
				p.now = p.now.Add(hearLimit)
			}
			p.passes(3)
			assert.False(t, p.there(&c, "m"))
			behind = false
			var claim corev1.PersistentVolumeClaim
			require.True(t, p.there(&claim, "m"))
			assert.Equal(t, hears, len(claim.Labels) == 0, "it is nobody's")
		})
	}
}

// TestAControllerThatIsNewAtEachStepMakesNothingTwice runs each pass with a new controller,
// which knows nothing of earlier passes.
func TestAControllerThatIsNewAtEachStepMakesNothingTwice(t *testing.T) {
	var made []string
	p := newPlace(t, nil, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		made = append(made, o.GetName())
		return c.Create(ctx, o, opts...)
	}})
	passes := func(n int) {
		for range n {
			p.c = New(p.c.opts)
			p.passes(1)
		}
	}
	passes(5)
	p.worker("w", `{"id":"id","revision":"r","bytes":1}`, batchv1.JobComplete)
	passes(5)
	assert.Equal(t, v1alpha1.ReasonWhole, p.condition(v1alpha1.ConditionAvailable).Reason)
	var c v1alpha1.ModelCache
	require.True(t, p.there(&c, "m"))
	require.NoError(t, p.api.Delete(t.Context(), &c))
	passes(5)
	assert.False(t, p.there(&c, "m"))
	assert.False(t, p.there(&corev1.PersistentVolumeClaim{}, "m"))
	assert.Equal(t, []string{"m", "m-fetch", "w"}, made)
}
