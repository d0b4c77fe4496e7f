package launcherpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// poolOf returns a Pool with an API that has a LauncherConfig of that mode and a node.
func poolOf(t *testing.T, mode v1alpha1.PopulationMode, there ...client.Object) (*Pool, *v1alpha1.LauncherConfig, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	config := configOf(t, plain)
	config.Spec.Population.Mode = mode
	there = append(there, config, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}})
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(config).
		WithIndex(&corev1.Pod{}, IndexConfig, func(o client.Object) []string { return IndexedConfig(o.(*corev1.Pod)) }).
		WithIndex(&corev1.Pod{}, dualpods.IndexNode, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{List: listed}).Build()
	told := events.NewFakeRecorder(10)
	return New(Options{API: api, Views: said{}, Recorder: told, Launcher: image, Authority: fixedAuthority(t), Need: needsOf(api)}), config, told
}

// listed lists as a cache does, and fails for Pods that would be copied.
func listed(ctx context.Context, api client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if _, ok := into.(*corev1.PodList); ok && (o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy) {
		return errors.New("the list would copy all Pods")
	}
	return api.List(ctx, into, opts...)
}

func (p *Pool) look(t *testing.T, config *v1alpha1.LauncherConfig) (reconcile.Result, *metav1.Condition) {
	t.Helper()
	again, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)})
	require.NoError(t, err)
	var now v1alpha1.LauncherConfig
	require.NoError(t, p.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &now))
	return again, meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionAccepted)
}

// tlsSecret returns a Secret with the name that the LauncherConfig needs.
func tlsSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LauncherConfig", Name: "vllm", UID: "config-uid", Controller: new(true)}
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vllm-launcher-tls", Labels: Labels("vllm"), OwnerReferences: []metav1.OwnerReference{owner}},
		Data:       map[string][]byte{"tls.crt": []byte("an old one"), "tls.key": []byte("its key")},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func ownedByNobody(s *corev1.Secret) { s.OwnerReferences = nil }

func TestTakenSecretNameBlocksLaunchersUntilItIsFree(t *testing.T) {
	for name, change := range map[string]func(*corev1.Secret){
		"it has no owner":                         ownedByNobody,
		"it has no owner and is not in the cache": func(s *corev1.Secret) { s.OwnerReferences, s.Labels = nil, nil },
		"another LauncherConfig owns it": func(s *corev1.Secret) {
			s.OwnerReferences[0].Name, s.OwnerReferences[0].UID = "other", "other-uid"
		},
		"an object of another kind owns it": func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "Deployment" },
	} {
		t.Run(name, func(t *testing.T) {
			secret := tlsSecret(change)
			pool, config, told := poolOf(t, v1alpha1.PerNode, secret)
			for range 2 {
				again, accepted := pool.look(t, config)
				assert.Equal(t, metav1.ConditionFalse, accepted.Status)
				assert.Equal(t, v1alpha1.ReasonNameTaken, accepted.Reason)
				assert.Equal(t, "Secret ns/vllm-launcher-tls exists and belongs to another owner: delete it, or give the LauncherConfig another name", accepted.Message)
				assert.Equal(t, nameTakenRecheck, again.RequeueAfter, "no event reports the deletion of an unlabelled Secret")
			}
			require.Len(t, told.Events, 1)
			assert.Contains(t, <-told.Events, "Warning NameTaken Secret ns/vllm-launcher-tls exists")
			var sets appsv1.DaemonSetList
			require.NoError(t, pool.opts.API.List(t.Context(), &sets))
			assert.Empty(t, sets.Items)

			require.NoError(t, pool.opts.API.Delete(t.Context(), secret))
			_, accepted := pool.look(t, config)
			assert.Equal(t, metav1.ConditionTrue, accepted.Status)
			require.NoError(t, pool.opts.API.List(t.Context(), &sets))
			assert.Len(t, sets.Items, 1)
			assert.Empty(t, told.Events)
		})
	}
}

func TestInvalidSecretIsReplaced(t *testing.T) {
	now := time.Now()
	other, _, err := authority.Next(nil, false, now)
	require.NoError(t, err)
	cert, key, err := other.Server("vllm.ns.launchers.hotseat.dev", now)
	require.NoError(t, err)
	for name, change := range map[string]func(*corev1.Secret){
		"it has no certificate":             func(s *corev1.Secret) { s.Data = nil },
		"its certificate cannot be parsed":  func(*corev1.Secret) {},
		"another authority signed it":       func(s *corev1.Secret) { s.Data = map[string][]byte{"tls.crt": cert, "tls.key": key} },
		"a deleted LauncherConfig owned it": func(s *corev1.Secret) { s.OwnerReferences[0].UID = "earlier" },
	} {
		t.Run(name, func(t *testing.T) {
			pool, config, told := poolOf(t, v1alpha1.PerNode, tlsSecret(change))
			again, accepted := pool.look(t, config)
			assert.Equal(t, metav1.ConditionTrue, accepted.Status, accepted.Message)
			ca := pool.opts.Authority.(fixed).now
			var made corev1.Secret
			require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(tlsSecret()), &made))
			until, good := hasValidCertificate(&made, config, ca, now)
			assert.True(t, good)
			assert.WithinDuration(t, until, now.Add(again.RequeueAfter), time.Minute, "the next pass renews it in time")
			assert.Equal(t, Labels("vllm"), made.Labels)
			assert.Empty(t, told.Events)

			pool.look(t, config)
			var still corev1.Secret
			require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(&made), &still))
			assert.Equal(t, made.Data, still.Data, "a valid Secret stays")
			_, good = hasValidCertificate(&made, config, ca, until)
			assert.False(t, good, "it is renewed in time")
			_, good = hasValidCertificate(&made, config, other, now)
			assert.False(t, good, "a new authority replaces it")
		})
	}
}

func TestOnDemandLauncherNeedsItsCertificateFirst(t *testing.T) {
	need := dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0"}
	pool, config, _ := poolOf(t, v1alpha1.OnDemand)
	wait := pool.Lacking(t.Context(), need)
	require.NotNil(t, wait)
	assert.Equal(t, "the launchers of LauncherConfig vllm have no certificate yet", wait.Why)
	assert.False(t, wait.Stuck)
	pool.look(t, config)
	assert.Nil(t, pool.Lacking(t.Context(), need))

	pool, config, _ = poolOf(t, v1alpha1.OnDemand, tlsSecret(ownedByNobody))
	pool.look(t, config)
	wait = pool.Lacking(t.Context(), need)
	require.NotNil(t, wait)
	assert.Contains(t, wait.Why, "Secret ns/vllm-launcher-tls exists and belongs to another owner")
	assert.True(t, wait.Stuck)
	assert.ErrorContains(t, pool.Create(t.Context(), need), "Secret ns/vllm-launcher-tls exists")
}
