package manager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
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
