package manager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods/internal/models/modelcache"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// modelCacheOf says from where engines of a namespace have their models when their
// requesters do not say: as the namespace's annotation says, or else as usual. A
// controller that looks at one namespace alone reads no annotations of namespaces,
// which are of the whole cluster.
func modelCacheOf(api client.Reader, only, usual string) func(ctx context.Context, namespace string) (string, []podmeta.Problem) {
	if usual == launcherapi.ModelCacheAuto {
		usual = "" // as launchers do that are told nothing, among them those of before there was a word for it
	}
	return func(ctx context.Context, namespace string) (string, []podmeta.Problem) {
		if only != "" {
			return usual, nil
		}
		of := aNamespace()
		field := fmt.Sprintf("annotation %s of namespace %s", podmeta.AnnotationModelCache, namespace)
		switch err := api.Get(ctx, client.ObjectKey{Name: namespace}, of); {
		case apierrors.IsNotFound(err): // the cache has it in a moment
			return usual, nil
		case err != nil:
			return "", []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: "cannot be read: " + err.Error()}}
		}
		mode, says := of.Annotations[podmeta.AnnotationModelCache]
		if !says {
			return usual, nil
		}
		if wrong := podmeta.CheckModelCache(mode); wrong != "" {
			return "", []podmeta.Problem{{Kind: podmeta.Invalid, Field: field, Message: wrong}}
		}
		return mode, nil
	}
}

// waitingFor has those nodes looked at on which requesters may wait for the model of a
// ClusterModelCache, when something else is so of it.
func waitingFor(api client.Client) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	all := nodesOfNamespace(api) // a ClusterModelCache is in none: of all of them
	add := func(requests []reconcile.Request, q queue) {
		for _, r := range requests {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(all(ctx, e.Object), q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(all(ctx, e.Object), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*v1alpha1.ClusterModelCache)
			after, too := e.ObjectNew.(*v1alpha1.ClusterModelCache)
			if !ok || !too {
				return
			}
			everywhere, nodes := modelcache.Changed(before, after)
			if everywhere {
				add(all(ctx, after), q)
			}
			for _, node := range nodes {
				add(request(node), q)
			}
		},
	}
}

// aNamespace is one of which only the metadata is of interest.
func aNamespace() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// setUpModelCacheOf has the annotations of namespaces known before the first pass.
func setUpModelCacheOf(ctx context.Context, mgr ctrl.Manager, only string) error {
	if only != "" {
		return nil
	}
	if _, err := mgr.GetCache().GetInformer(ctx, aNamespace(), cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cannot watch namespaces: %w", err)
	}
	return nil
}
