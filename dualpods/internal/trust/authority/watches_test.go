package authority

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// onlyNamespaces is a cache that has namespaces, and nothing else.
type onlyNamespaces struct {
	informertest.FakeInformers
	namespaces toolscache.SharedIndexInformer
}

func (c *onlyNamespaces) GetInformer(_ context.Context, o client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	if of, is := o.(*metav1.PartialObjectMetadata); is && of.Kind == "Namespace" {
		return c.namespaces, nil
	}
	return controllertest.NewFakeInformer(controllertest.Synced), nil
}

func TestAuthorityIsPublishedInEachNamespaceWhenItIsCreated(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	created := cachetesting.NewFakeControllerSource()
	defer created.Shutdown()
	namespaces := toolscache.NewSharedIndexInformer(created, &metav1.PartialObjectMetadata{}, 0, nil)
	running.Go(func() { namespaces.Run(ctx.Done()) })
	mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) {
			return &onlyNamespaces{namespaces: namespaces}, nil
		},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	require.NoError(t, err)

	made, _, err := Next(nil, false, time.Now())
	require.NoError(t, err)
	published := make(chan *corev1.ConfigMap, 1)
	api := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		published <- o.(*corev1.ConfigMap)
		return nil
	}}).Build()
	publisher := &Publisher{API: api, Current: func(context.Context) (*Authorities, error) { return made, nil }}
	nobody := source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
	require.NoError(t, publisher.SetupWithManager(mgr, nobody, ""))
	running.Go(func() { assert.NoError(t, mgr.Start(ctx)) })

	for _, name := range []string{"first", "second"} {
		created.Add(&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
		select {
		case there := <-published:
			assert.Equal(t, client.ObjectKey{Namespace: name, Name: mtls.ConfigMap}, client.ObjectKeyFromObject(there))
			assert.Equal(t, string(made.Certificates()), there.Data[mtls.CAFile])
		case <-time.After(patience.Wait()):
			require.Fail(t, "nothing was published", name)
		}
	}
}
