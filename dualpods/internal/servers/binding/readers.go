package binding

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// podsTimeout bounds a list of the Pods of a node by the API server.
const podsTimeout = 5 * time.Second

// ReadPods returns a function that reads the Pods of a node from the API server: a list
// without a resource version is never stale
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list).
func ReadPods(api client.Reader, namespace string) func(context.Context, string) ([]corev1.Pod, error) {
	return func(ctx context.Context, node string) ([]corev1.Pod, error) {
		ctx, stop := context.WithTimeout(ctx, podsTimeout)
		defer stop()
		var pods corev1.PodList
		err := api.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{dualpods.IndexNode: node})
		return pods.Items, err
	}
}

// ReadModelCache returns a function that reads from where engines of a namespace load
// their models when their requesters do not say: from where the annotation of the
// namespace says, or else from the usual place. Namespaces are cluster-scoped: a
// controller that watches only one namespace does not read their annotations.
func ReadModelCache(api client.Reader, only, usual string) func(ctx context.Context, namespace string) (string, []podmeta.Problem) {
	if usual == launcherapi.ModelCacheAuto {
		usual = "" // as launchers do that are told nothing, among them those of before there was a word for it
	}
	return func(ctx context.Context, namespace string) (string, []podmeta.Problem) {
		if only != "" {
			return usual, nil
		}
		of := metadataOfNamespace()
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

// metadataOfNamespace is a namespace whose metadata alone is read.
func metadataOfNamespace() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}
