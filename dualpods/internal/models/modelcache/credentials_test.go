package modelcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/models/modelvolume"
	"hotseat.dev/hotseat/dualpods/internal/models/sourcesecret"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// gate is a launcher whose source accepts one token. It records its calls.
type gate struct {
	token   string
	silent  bool // its models are unknown
	refuses bool // its models are unknown because the call failed
	models  map[string]nodeview.Model

	mu    sync.Mutex
	asked []launcherapi.ModelRequest
}

func (g *gate) PullModel(_ context.Context, r launcherapi.ModelRequest) (launcherapi.Model, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, r)
	if r.Credentials["HF_TOKEN"] != g.token {
		return launcherapi.Model{}, &launcher.Error{Code: launcherapi.CodeForbidden, Detail: "the source refuses access", FailureCause: fetchapi.ReasonAccessDenied}
	}
	return launcherapi.Model{ID: "id", Revision: commit, State: launcherapi.ModelDownloading}, nil
}

func (g *gate) RemoveModel(context.Context, string, string) (launcherapi.Model, error) {
	return launcherapi.Model{}, nil
}

func (g *gate) calls() []launcherapi.ModelRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

func (g *gate) Pick(string, func(string, launcherapi.Instance) bool) nodeview.View {
	if g.silent {
		return nodeview.View{ModelsAsked: g.refuses}
	}
	return nodeview.View{Connected: true, Certified: true, Models: g.models, ModelsAsked: true}
}

func (g *gate) Client(string) Client { return g }

// gatedSite is a controller with one launcher, on node n1.
type gatedSite struct {
	*gate
	t       *testing.T
	c       *Controller
	api     client.Client
	now     time.Time
	secret  *corev1.Secret         // nil: there is none
	account *corev1.ServiceAccount // nil: there is none
	again   chan struct{}
	events  *events.FakeRecorder
	written string // log of the controller
}

func newGatedSite(t *testing.T) *gatedSite {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	w := world()
	w.gated()
	cache, group := &w.Caches[0], w.Groups["gpu"]
	cache.Status, cache.Finalizers = v1alpha1.ClusterModelCacheStatus{}, []string{podmeta.FinalizerModelCache}
	config := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "config"}}
	config.Spec.ModelCache = &v1alpha1.LauncherModelCache{NodeGroup: "gpu"}
	group.Spec.Namespaces = []string{"default"}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "launcher-1", UID: "l1", Labels: map[string]string{
			podmeta.LabelModelNodeGroup: "gpu", podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "x",
		}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(config, v1alpha1.GroupVersion.WithKind("LauncherConfig"))}},
		Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: podmeta.VolumeModels, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/models"}}}}},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"gpu": "yes"}}}
	s := &gatedSite{gate: &gate{token: "right-token", models: map[string]nodeview.Model{}}, t: t, now: now, again: make(chan struct{}, 9), events: events.NewFakeRecorder(99)}
	s.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cache, group, pod, node, config).WithStatusSubresource(cache).
		WithIndex(&corev1.Pod{}, IndexStore, func(o client.Object) []string { return IndexedStore(o.(*corev1.Pod)) }).
		WithIndex(&corev1.Pod{}, modelvolume.Index, func(o client.Object) []string { return modelvolume.Indexed(o.(*corev1.Pod)) }).Build()
	s.c = New(t.Context(), Options{
		API: s.api, Launchers: s.gate, Recorder: s.events, Namespace: "hotseat-system", Again: func() { s.again <- struct{}{} }, Now: func() time.Time { return s.now },
		Credentials: sourcesecret.Reader{
			Secret: func(_ context.Context, key client.ObjectKey) (*corev1.Secret, error) {
				assert.Equal(t, client.ObjectKey{Namespace: "hotseat-system", Name: "hub"}, key)
				if s.secret == nil {
					return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
				}
				return s.secret, nil
			},
			Account: func(_ context.Context, key client.ObjectKey) (*corev1.ServiceAccount, error) {
				assert.Equal(t, client.ObjectKey{Namespace: "hotseat-system", Name: "reader"}, key)
				if s.account == nil {
					return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
				}
				return s.account, nil
			},
		},
		Log: funcr.New(func(_, args string) { s.written += args + "\n" }, funcr.Options{Verbosity: 9}),
	})
	t.Cleanup(s.c.Close)
	return s
}

// pass runs a pass a second later, and further passes while passes call launchers. It returns
// the condition CredentialsAccepted.
func (s *gatedSite) pass() metav1.Condition {
	s.t.Helper()
	for {
		before := len(s.calls())
		s.now = s.now.Add(minPassInterval)
		_, err := s.c.Reconcile(s.t.Context(), reconcile.Request{})
		require.NoError(s.t, err)
		s.c.calls.Wait()
		if len(s.calls()) == before {
			break
		}
		<-s.again
	}
	var cache v1alpha1.ClusterModelCache
	require.NoError(s.t, s.api.Get(s.t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	assert.NotContains(s.t, fmt.Sprintf("%+v", cache)+s.written, "-token", "no value is report anywhere")
	is := meta.FindStatusCondition(cache.Status.Conditions, v1alpha1.ConditionCredentialsAccepted)
	require.NotNil(s.t, is)
	return *is
}

// announced returns the next Event.
func (s *gatedSite) announced() string {
	s.t.Helper()
	select {
	case e := <-s.events.Events:
		assert.NotContains(s.t, e, "-token")
		return e
	default:
		return ""
	}
}

func (s *gatedSite) token(key, value string) {
	s.secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Data: map[string][]byte{key: []byte(value)}}
}

func TestChangedSecretIsUsedAtOnce(t *testing.T) {
	s := newGatedSite(t)
	is := s.pass()
	assert.Equal(t, v1alpha1.ReasonSecretMissing, is.Reason)
	assert.Contains(t, s.announced(), "Warning SecretMissing there is no Secret hotseat-system/hub")
	assert.Empty(t, s.calls(), "no launcher is called without the credentials")

	s.token("HF_TOKN", "right-token")
	is = s.pass()
	assert.Equal(t, v1alpha1.ReasonSecretInvalid, is.Reason)
	assert.Contains(t, is.Message, `"HF_TOKN" is not known: hf:// takes HF_TOKEN`)
	assert.Contains(t, s.announced(), "Warning SecretInvalid")

	s.token("HF_TOKEN", "wrong-token")
	is = s.pass()
	assert.Equal(t, v1alpha1.ReasonAccessDenied, is.Reason)
	assert.Contains(t, is.Message, "those of Secret hotseat-system/hub")
	assert.Contains(t, s.announced(), "Warning AccessDenied")
	require.Len(t, s.calls(), 1)
	s.pass()
	require.Len(t, s.calls(), 1, "the pause is not over")

	s.token("HF_TOKEN", "right-token\n")
	is = s.pass()
	assert.Equal(t, v1alpha1.ReasonSecretRead, is.Reason)
	require.Len(t, s.calls(), 2)
	assert.True(t, assert.ObjectsAreEqual(fetchapi.Credentials{"HF_TOKEN": "right-token"}, s.calls()[1].Credentials))
	assert.True(t, s.calls()[1].UnlessThere, "a launcher does not fetch what it has")
	s.secret.Labels = map[string]string{"new": "label"}
	s.pass()
	require.Len(t, s.calls(), 2, "its data is the same")
	assert.Empty(t, s.announced())
}

func TestEachUnreadableSecretIsReported(t *testing.T) {
	s := newGatedSite(t)
	var cache v1alpha1.ClusterModelCache
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	cache.Name, cache.UID, cache.ResourceVersion, cache.Spec.Credentials.SecretRef.Name = "mistral", "u2", "", "other"
	require.NoError(t, s.api.Create(t.Context(), &cache))
	s.c.opts.Credentials.Secret = func(_ context.Context, key client.ObjectKey) (*corev1.Secret, error) {
		return nil, errors.New(key.Name + " is forbidden")
	}
	_, err := s.c.Reconcile(t.Context(), reconcile.Request{})
	assert.ErrorContains(t, err, "hub is forbidden")
	assert.ErrorContains(t, err, "other is forbidden")
}

func TestChangedServiceAccountIsUsedAtOnce(t *testing.T) {
	s := newGatedSite(t)
	var cache v1alpha1.ClusterModelCache
	require.NoError(t, s.api.Get(t.Context(), client.ObjectKey{Name: "llama"}, &cache))
	cache.Spec.Credentials = &v1alpha1.ModelCredentials{ServiceAccountName: "reader"}
	require.NoError(t, s.api.Update(t.Context(), &cache))
	assert.Equal(t, v1alpha1.ReasonAccountMissing, s.pass().Reason)
	assert.Contains(t, s.announced(), "Warning ServiceAccountMissing there is no ServiceAccount hotseat-system/reader")

	s.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
	is := s.pass()
	assert.Equal(t, v1alpha1.ReasonSecretMissing, is.Reason)
	assert.Equal(t, "ServiceAccount hotseat-system/reader lists no Secret with HF_TOKEN: list a Secret that has it among the secrets of the account", is.Message)
	assert.Contains(t, s.announced(), "Warning SecretMissing")

	s.account.Secrets = []corev1.ObjectReference{{Name: "hub"}}
	assert.Contains(t, s.pass().Message, "hub, which does not exist")
	assert.Empty(t, s.calls())
	s.token("HF_TOKEN", "wrong-token")
	is = s.pass()
	assert.Equal(t, v1alpha1.ReasonAccessDenied, is.Reason)
	assert.Contains(t, is.Message, "the credentials are those of Secret hotseat-system/hub of ServiceAccount hotseat-system/reader")
	s.token("HF_TOKEN", "right-token")
	assert.Equal(t, v1alpha1.ReasonSecretRead, s.pass().Reason)
	require.Len(t, s.calls(), 2)
	assert.True(t, s.calls()[1].Private)
}

func TestFetchIsRetriedOnceTheStoreHasRoom(t *testing.T) {
	s := newGatedSite(t)
	call := Call{Launcher: "l1", Holder: holder}
	s.c.answers[call] = Answer{AnsweredAt: now, Tries: 5, Err: "it is full", Cause: fetchapi.ReasonCapacityExceeded}
	whole, came := launcherapi.Model{ID: "a", Bytes: 7, State: launcherapi.ModelReady}, now
	whole.Published = &came
	w := world()
	due := func(models ...launcherapi.Model) bool {
		t.Helper()
		all := map[string]nodeview.Model{}
		for _, m := range models {
			all[m.ID] = nodeview.NewModel(m)
		}
		w.Launchers[0].Models = all
		s.c.updateAnswers(w)
		return !s.c.answers[call].retryAt().After(w.Now)
	}
	partial := launcherapi.Model{ID: "b", Bytes: 9, State: launcherapi.ModelPartial}
	assert.False(t, due(whole, partial))
	assert.False(t, due(whole), "partial models do not count")
	w.Launchers[0].Models = nil
	s.c.updateAnswers(w)
	assert.True(t, s.c.answers[call].retryAt().After(w.Now), "the store's models are unknown")
	assert.True(t, due(), "a model is gone")
	assert.Equal(t, 5, s.c.answers[call].Tries, "the back-off goes on growing")
	due(whole)
	s.c.startCall(call, PullRequest{})
	s.c.calls.Wait()
	again := s.c.answers[call]
	again.Err, again.Cause = "it is full", fetchapi.ReasonCapacityExceeded
	s.c.answers[call] = again
	assert.False(t, due(), "the model was gone before this try failed")
	assert.False(t, due(whole))
	assert.True(t, due(), "a model is gone after it")
	s.c.answers[call] = Answer{AnsweredAt: now, Tries: 1, Err: "no", Cause: fetchapi.ReasonAccessDenied}
	assert.False(t, due(whole))
	assert.False(t, due(), "it failed for another reason")
}

func TestRunningFetchHidesTheFailureOfAnEarlierVersion(t *testing.T) {
	s := newGatedSite(t)
	call := Call{Launcher: "l1", Holder: holder}
	w := world()
	runs := nodeview.NewModel(launcherapi.Model{State: launcherapi.ModelDownloading, WantedBy: []string{holder}})
	failed := nodeview.NewModel(launcherapi.Model{State: launcherapi.ModelFailed, Reason: "no", WantedBy: []string{holder}})
	w.Launchers[0].Models = map[string]nodeview.Model{"earlier": failed, "later": runs}
	s.c.answers[call] = Answer{AnsweredAt: w.Now.Add(-watchDelay)}
	s.c.updateAnswers(w)
	assert.Empty(t, s.c.answers[call].Err)
	w.Launchers[0].Models["later"] = failed
	w.Now = w.Now.Add(time.Second)
	s.c.updateAnswers(w)
	assert.Equal(t, Answer{AnsweredAt: w.Now, Tries: 1, Err: "no"}, s.c.answers[call], "the pause begins when the fetch has ended")
}

func TestFetchThatFailsAfterItsStartBacksOff(t *testing.T) {
	s := newGatedSite(t)
	failed := launcherapi.Model{State: launcherapi.ModelFailed, Reason: "no", Cause: fetchapi.ReasonAccessDenied, WantedBy: []string{holder}}
	call := Call{Launcher: "l1", Holder: holder}
	w := world()
	w.has(0, failed)
	for tries := 1; tries < 4; tries++ {
		s.c.answers[call] = Answer{AnsweredAt: w.Now, Tries: tries - 1} // the launcher has accepted
		s.c.updateAnswers(w)
		assert.Empty(t, s.c.answers[call].Err, "the watch stream may not show it yet")
		w.Launchers[0].Models = map[string]nodeview.Model{"id": nodeview.NewModel(launcherapi.Model{State: launcherapi.ModelDownloading, WantedBy: []string{holder}})}
		w.Now = w.Now.Add(time.Hour)
		s.c.updateAnswers(w)
		w.has(0, failed)
		s.c.updateAnswers(w)
		a := s.c.answers[call]
		assert.Equal(t, Answer{AnsweredAt: w.Now, Tries: tries, Err: "no", Cause: fetchapi.ReasonAccessDenied}, a)
		assert.Equal(t, w.Now.Add(firstBackoff<<(tries-1)), a.retryAt())
		w.Now = a.retryAt()
	}
}
