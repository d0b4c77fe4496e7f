package sourcesecret

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnSecrets are the Secrets of the controller's own namespace, which model caches name. A watch of
// their metadata tells which ones there are, and which have changed. The values of a Secret are
// read when a model cache names it.
type OwnSecrets struct {
	heard client.Reader // metadata, from the watch
	api   client.Reader
	read  map[string]*corev1.Secret // by name, as they were read last
}

// WatchOwn calls changed whenever a Secret of a namespace comes, changes or goes.
func WatchOwn(ctx context.Context, mgr ctrl.Manager, config *rest.Config, namespace string, changed func()) (*OwnSecrets, error) {
	watch, err := cache.New(config, cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), DefaultTransform: versionAlone,
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch the Secrets of namespace %s: %w", namespace, err)
	}
	informer, err := watch.GetInformer(ctx, aSecret(), cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot watch the Secrets of namespace %s: %w", namespace, err)
	}
	return &OwnSecrets{heard: watch, api: mgr.GetAPIReader(), read: map[string]*corev1.Secret{}}, mgr.Add(watch)
}

// versionAlone leaves out what may have a Secret's values in it, as the annotation of
// kubectl apply has.
func versionAlone(in any) (any, error) {
	if o, err := meta.Accessor(in); err == nil { // else the last that is known of what is gone
		o.SetAnnotations(nil)
		o.SetManagedFields(nil)
	}
	return in, nil
}

// aSecret is one of which only the metadata is of interest.
func aSecret() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
}

// readLimit bounds a question to the API server.
const readLimit = 5 * time.Second

// Get reads a Secret, and asks the API server only for one that has changed since it
// was read last. Callers make one call at a time.
func (s *OwnSecrets) Get(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	ctx, stop := context.WithTimeout(ctx, readLimit)
	defer stop()
	name, now := key.Name, aSecret()
	if err := s.heard.Get(ctx, key, now); err != nil {
		delete(s.read, name)
		return nil, err
	}
	if there := s.read[name]; there != nil && there.ResourceVersion == now.ResourceVersion {
		return there, nil
	}
	var secret corev1.Secret
	if err := s.api.Get(ctx, key, &secret); err != nil {
		delete(s.read, name)
		return nil, err
	}
	s.read[name] = &secret
	return &secret, nil
}
