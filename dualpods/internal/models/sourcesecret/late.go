package sourcesecret

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lateWatch is a watch that begins with the first read, of objects that few clusters have a use for.
type lateWatch struct {
	in      cache.Cache
	of      client.Object
	changed func(client.ObjectKey) // one comes, changes or goes
	open    sync.Mutex
	heard   bool
}

// listen hears of changes from the first call on.
func (w *lateWatch) listen(ctx context.Context) error {
	w.open.Lock()
	defer w.open.Unlock()
	if w.heard {
		return nil
	}
	informer, err := w.in.GetInformer(ctx, w.of)
	if err == nil {
		tell := func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if is, err := meta.Accessor(o); err == nil {
				w.changed(client.ObjectKey{Namespace: is.GetNamespace(), Name: is.GetName()})
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell})
	}
	if err != nil {
		return fmt.Errorf("cannot watch what model caches name for credentials: %w", err)
	}
	w.heard = true
	return nil
}

// NamedSecrets are Secrets that ModelCaches name. From the first read on, a watch of their metadata
// tells which ones there are, and which have changed. The values of a Secret are read by its name.
type NamedSecrets struct {
	watch lateWatch // of metadata
	api   client.Reader
}

// WatchNamed calls changed whenever a Secret comes, changes or goes: of all namespaces, or of only
// one if that is not empty.
func WatchNamed(mgr ctrl.Manager, config *rest.Config, only string, changed func(client.ObjectKey)) (*NamedSecrets, error) {
	o := cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), DefaultTransform: versionAlone}
	if only != "" {
		o.DefaultNamespaces = map[string]cache.Config{only: {}}
	}
	watch, err := cache.New(config, o)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the Secrets of model caches: %w", err)
	}
	return &NamedSecrets{watch: lateWatch{in: watch, of: aSecret(), changed: changed}, api: mgr.GetAPIReader()}, mgr.Add(watch)
}

// Get reads a Secret, by a list of the one of that name: the controller may list Secrets,
// among which are those of its launchers, and may get none.
func (s *NamedSecrets) Get(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	ctx, stop := context.WithTimeout(ctx, readLimit)
	defer stop()
	if err := s.watch.listen(ctx); err != nil {
		return nil, err
	}
	if err := s.watch.in.Get(ctx, key, aSecret()); err != nil { // the watch tells of a Secret that comes later
		return nil, err
	}
	var secrets corev1.SecretList
	if err := s.api.List(ctx, &secrets, client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}); err != nil {
		return nil, fmt.Errorf("cannot list Secret %s: %w", key, err)
	}
	if len(secrets.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	return &secrets.Items[0], nil
}

// Accounts are the ServiceAccounts that model caches name, from a watch that begins with the first
// read.
type Accounts struct{ watch lateWatch }

// WatchAccounts calls changed whenever a ServiceAccount comes, changes or goes.
func WatchAccounts(mgr ctrl.Manager, changed func(client.ObjectKey)) *Accounts {
	return &Accounts{lateWatch{in: mgr.GetCache(), of: &corev1.ServiceAccount{}, changed: changed}}
}

// Get reads a ServiceAccount.
func (a *Accounts) Get(ctx context.Context, key client.ObjectKey) (*corev1.ServiceAccount, error) {
	ctx, stop := context.WithTimeout(ctx, readLimit)
	defer stop()
	if err := a.watch.listen(ctx); err != nil {
		return nil, err
	}
	var account corev1.ServiceAccount
	err := a.watch.in.Get(ctx, key, &account)
	return &account, err
}
