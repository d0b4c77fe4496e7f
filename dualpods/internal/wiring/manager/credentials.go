package manager

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

// lateWatch is one that begins when it is first asked for, of objects that few clusters
// have a use for.
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

// namedSecrets are Secrets that ModelCaches name. From the first that is asked for on it is
// heard which there are, and that one has changed. What is in one is asked for by its name.
type namedSecrets struct {
	watch lateWatch // of metadata
	api   client.Reader
}

func newNamedSecrets(mgr ctrl.Manager, config *rest.Config, opts Options, changed func(client.ObjectKey)) (*namedSecrets, error) {
	o := cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(), DefaultTransform: versionAlone}
	if opts.Namespace != "" {
		o.DefaultNamespaces = map[string]cache.Config{opts.Namespace: {}}
	}
	watch, err := cache.New(config, o)
	if err != nil {
		return nil, fmt.Errorf("cannot watch the Secrets of model caches: %w", err)
	}
	return &namedSecrets{watch: lateWatch{in: watch, of: aSecret(), changed: changed}, api: mgr.GetAPIReader()}, mgr.Add(watch)
}

// get reads a Secret, by a list of the one of that name: the controller may list Secrets,
// among which are those of its launchers, and may get none.
func (s *namedSecrets) get(ctx context.Context, key client.ObjectKey) (*corev1.Secret, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	if err := s.watch.listen(ctx); err != nil {
		return nil, err
	}
	if err := s.watch.in.Get(ctx, key, aSecret()); err != nil { // who is heard of later is read then
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

// accounts are ServiceAccounts that model caches name, from a watch that begins with the
// first that is asked for.
type accounts struct{ watch lateWatch }

func newAccounts(mgr ctrl.Manager, changed func(client.ObjectKey)) *accounts {
	return &accounts{lateWatch{in: mgr.GetCache(), of: &corev1.ServiceAccount{}, changed: changed}}
}

func (a *accounts) get(ctx context.Context, key client.ObjectKey) (*corev1.ServiceAccount, error) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	if err := a.watch.listen(ctx); err != nil {
		return nil, err
	}
	var account corev1.ServiceAccount
	err := a.watch.in.Get(ctx, key, &account)
	return &account, err
}
