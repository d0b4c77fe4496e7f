package authority

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

// Publisher tells the requesters of a namespace whom to trust, by the ConfigMap
// mtls.ConfigMap. As kube-root-ca.crt, which Kubernetes publishes, it is in every
// namespace, and stays as long as the namespace does.
type Publisher struct {
	API client.Client // reads from a cache
	// Current are the authorities; see [Keeper.Current].
	Current func(context.Context) (*Authorities, error)
}

// Reconcile looks at the namespace of the request's name.
func (p *Publisher) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ca, err := p.Current(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	want := map[string]string{mtls.CAFile: string(ca.Certificates())}
	var there corev1.ConfigMap
	err = p.API.Get(ctx, client.ObjectKey{Namespace: request.Name, Name: mtls.ConfigMap}, &there)
	switch {
	case apierrors.IsNotFound(err):
		err = p.API.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: request.Name, Name: mtls.ConfigMap, Labels: map[string]string{podmeta.LabelManagedBy: podmeta.ManagedBy}},
			Data:       want,
		})
	case err == nil && !maps.Equal(there.Data, want):
		changed := there.DeepCopy()
		changed.Data = want
		err = p.API.Update(ctx, changed)
	}
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err): // the namespace is going, or gone
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // the cache is behind
		return reconcile.Result{RequeueAfter: retryAfter}, nil
	}
	return reconcile.Result{}, fmt.Errorf("cannot publish ConfigMap %s/%s: %w", request.Name, mtls.ConfigMap, err)
}
