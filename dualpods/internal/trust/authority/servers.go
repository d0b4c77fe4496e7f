package authority

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Servers keeps the certificate of a kind of server in a Secret, which the Pods of these servers mount.
type Servers struct {
	API       client.Client // reads from a cache
	Kind      string        // of the servers, such as agents; the controller's name
	Namespace string        // of the Secret
	Secret    string        // its name
	Name      string        // in the certificate
	// Current are the authorities; see [Keeper.Current].
	Current func(context.Context) (*Authorities, error)
	Now     func() time.Time
}

// Reconcile writes the Secret if it is missing, or its certificate has to be renewed.
func (s *Servers) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ca, err := s.Current(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var there corev1.Secret
	err = s.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Secret}, &there)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return reconcile.Result{}, fmt.Errorf("cannot read Secret %s/%s: %w", s.Namespace, s.Secret, err)
	}
	name, now := s.Name, s.Now()
	until, good := ca.Good(there.Data[mtls.CertFile], there.Data[mtls.KeyFile], name, now)
	if !good || !bytes.Equal(there.Data[mtls.CAFile], ca.Certificates()) {
		if until, err = s.write(ctx, &there, missing, ca, name, now); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: min(until.Sub(now), longestWait)}, nil
}

// write gives the Secret another certificate.
func (s *Servers) write(ctx context.Context, there *corev1.Secret, missing bool, ca *Authorities, name string, now time.Time) (until time.Time, err error) {
	certificate, key, err := ca.Server(name, now)
	if err != nil {
		return time.Time{}, err
	}
	secret := there.DeepCopy()
	secret.Data = map[string][]byte{mtls.CertFile: certificate, mtls.KeyFile: key, mtls.CAFile: ca.Certificates()}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Secret, Labels: map[string]string{podmeta.LabelManagedBy: podmeta.ManagedBy}}
		err = s.API.Create(ctx, secret)
	} else {
		err = s.API.Update(ctx, secret)
	}
	until, _ = ca.Good(certificate, key, name, now)
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // the cache is behind
		return now.Add(retryAfter), nil
	case err != nil:
		return time.Time{}, fmt.Errorf("cannot write the certificate in Secret %s/%s: %w", s.Namespace, s.Secret, err)
	}
	return until, nil
}

// SetupWithManager has the Secret looked at when the controller starts, when it changes in the
// cache, and when others ask for it. The cache has that Secret alone.
func (s *Servers) SetupWithManager(mgr ctrl.Manager, secrets cache.Cache, others source.Source) error {
	only := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.Namespace, Name: s.Secret}}
	if err := mgr.Add(secrets); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named(s.Kind).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(only)
			return nil
		})).
		WatchesRawSource(source.Kind[client.Object](secrets, &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{only}
		}))).
		WatchesRawSource(others).
		Complete(s)
}
