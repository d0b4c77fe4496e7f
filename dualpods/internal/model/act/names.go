package act

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/model/merge"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexName is the index of Models in the cache by the names that clients may ask for.
const IndexName = "modelname"

// IndexedNames returns the values of a Model in that index.
func IndexedNames(o client.Object) []string { return merge.Names(o.(*v1alpha1.Model)) }

// named returns the Models of a namespace that have a name and are not being deleted.
func named(ctx context.Context, api client.Reader, namespace, name string) (all []*v1alpha1.Model, err error) {
	var models v1alpha1.ModelList
	if err := api.List(ctx, &models, client.InNamespace(namespace), client.MatchingFields{IndexName: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot list the Models with the name %s: %w", name, err)
	}
	for i := range models.Items {
		if m := &models.Items[i]; m.DeletionTimestamp.IsZero() {
			all = append(all, m)
		}
	}
	return all, nil
}

// observeNames finds the aliases and adapters of the Model whose requests go to another Model: one with that name, or an
// older one with the same alias. Front doors decide the same.
func (c *Controller) observeNames(ctx context.Context, w *world) error {
	for _, name := range merge.Names(w.model)[1:] {
		others, err := named(ctx, c.opts.API, w.model.Namespace, name)
		if err != nil {
			return err
		}
		for _, other := range others {
			if other.Name != w.model.Name && (other.Name == name || merge.ByAge(other.CreationTimestamp.Time, other.Name, w.model.CreationTimestamp.Time, w.model.Name) < 0) {
				w.lost = append(w.lost, fmt.Sprintf("requests for %s go to the Model %s: rename this alias or adapter here, or in that Model", name, other.Name))
				break
			}
		}
	}
	return nil
}

// ofSameNames reconciles the Models that share a name with a changed Model.
func ofSameNames(api client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) (all []reconcile.Request) {
		for _, name := range IndexedNames(changed) {
			others, err := named(ctx, api, changed.GetNamespace(), name)
			if err != nil {
				return all
			}
			for _, m := range others {
				if m.Name != changed.GetName() {
					all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
				}
			}
		}
		return all
	})
}
