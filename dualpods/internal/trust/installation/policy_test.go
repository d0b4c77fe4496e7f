package installation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const simPolicy = "hotseat-controller-requesters"

// lagging is an API server in memory that applies the policy for requesters until so long after
// its binding was deleted. A requester is created at each of these times after that.
func lagging(t *testing.T, lag time.Duration, created ...time.Duration) (api client.Client, began func() time.Time) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	var deleted time.Time
	api = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: simPolicy}}).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.Delete(ctx, o, opts...); err != nil {
				return err
			}
			if _, ok := o.(*admissionv1.MutatingAdmissionPolicyBinding); ok {
				deleted = time.Now()
				for n, after := range created {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("requester-%d", n)}}
					if after < lag {
						pod.Finalizers = []string{podmeta.FinalizerRequester}
					}
					time.AfterFunc(after, func() { assert.NoError(t, c.Create(ctx, pod)) })
				}
			}
			return nil
		}}).Build()
	return api, func() time.Time { return deleted }
}

func TestRequestersAreReleasedUntilTheirPolicyHasNoEffect(t *testing.T) {
	for name, c := range map[string]struct {
		lag     time.Duration
		created []time.Duration
		takes   time.Duration
	}{
		"nobody comes":                {takes: policyLag},
		"requesters come without it":  {created: []time.Duration{time.Second, 4 * time.Second}, takes: policyLag},
		"requesters come with it":     {lag: 1200 * time.Millisecond, created: []time.Duration{500 * time.Millisecond, 1100 * time.Millisecond, 3 * time.Second}, takes: 2*time.Second + policyLag},
		"an API server lags for long": {lag: 12 * time.Second, created: []time.Duration{4500 * time.Millisecond, 9500 * time.Millisecond, 13 * time.Second}, takes: 10*time.Second + policyLag},
		"one comes as it begins":      {lag: time.Second, created: []time.Duration{0}, takes: time.Second + policyLag},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, deleted := lagging(t, c.lag, c.created...)
				opts := LetGoOptions{RequesterPolicy: simPolicy, Engines: Leave, Log: logr.Discard()}
				require.NoError(t, LetGo(t.Context(), api, opts))
				took := time.Since(deleted())
				assert.LessOrEqual(t, took, c.takes)
				assert.GreaterOrEqual(t, took, policyLag)
				var pods corev1.PodList
				require.NoError(t, api.List(t.Context(), &pods))
				for i := range pods.Items {
					assert.Empty(t, pods.Items[i].Finalizers, pods.Items[i].Name)
				}
				err := api.Get(t.Context(), client.ObjectKey{Name: simPolicy}, &admissionv1.MutatingAdmissionPolicyBinding{})
				assert.True(t, apierrors.IsNotFound(err), "%v", err)
				time.Sleep(20 * time.Second) // until all were created
			})
		})
	}
}

func TestPolicyIsGoneBeforeTheControllerIsStopped(t *testing.T) {
	refused := errors.New("no")
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	var did []string
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			did = append(did, "delete "+o.GetName())
			return apierrors.NewNotFound(admissionv1.Resource("mutatingadmissionpolicybindings"), o.GetName()) // an earlier attempt did
		},
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			did = append(did, "get "+key.Name)
			return refused
		},
	}).Build()
	opts := LetGoOptions{RequesterPolicy: simPolicy, Deployment: client.ObjectKey{Namespace: "system", Name: "controller"}, Engines: Leave, Log: logr.Discard()}
	require.ErrorIs(t, LetGo(t.Context(), api, opts), refused)
	assert.Equal(t, []string{"delete " + simPolicy, "get controller"}, did)
}
