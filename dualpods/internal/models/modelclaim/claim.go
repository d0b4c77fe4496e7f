package modelclaim

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// newClaim returns the claim to create for a ModelCache.
func (w *World) newClaim() *corev1.PersistentVolumeClaim {
	t := w.Cache.Spec.ClaimTemplate
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Cache.Namespace, Name: w.claimName(), Labels: labelsOf(w.Cache), OwnerReferences: w.owners(nil)}}
	claim.Spec.StorageClassName, claim.Spec.AccessModes = t.StorageClassName, t.AccessModes
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: t.Storage}
	return claim
}

// owners returns the owner references that the claim should have: others, and the ModelCache
// unless its reclaim policy is Retain. A retained claim has only the labels of its ModelCache.
func (w *World) owners(others []metav1.OwnerReference) []metav1.OwnerReference {
	all := slices.DeleteFunc(slices.Clone(others), func(o metav1.OwnerReference) bool { return o.UID == w.Cache.UID })
	if w.Cache.Spec.Reclaim() == v1alpha1.ReclaimDelete {
		all = append(all, ownedBy(w.Cache))
	}
	return all
}

// changedClaim returns the claim as it should be. It returns nil when no change is needed, or
// when the controller did not create the claim for this cache.
func (w *World) changedClaim() *corev1.PersistentVolumeClaim {
	if !w.made() {
		return nil
	}
	want := w.Claim.DeepCopy()
	if owners := w.owners(want.OwnerReferences); !sameOwners(owners, want.OwnerReferences) {
		want.OwnerReferences = owners
	}
	storage := w.Cache.Spec.ClaimTemplate.Storage
	if storage.Cmp(*want.Spec.Resources.Requests.Storage()) > 0 {
		want.Spec.Resources.Requests = maps.Clone(want.Spec.Resources.Requests)
		want.Spec.Resources.Requests[corev1.ResourceStorage] = storage
	}
	if equality.Semantic.DeepEqual(want, w.Claim) {
		return nil
	}
	return want
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	uids := func(all []metav1.OwnerReference) (uids []string) {
		for _, o := range all {
			uids = append(uids, string(o.UID))
		}
		slices.Sort(uids)
		return uids
	}
	return slices.Equal(uids(a), uids(b))
}

// released returns the claim without the labels and the owner reference of its ModelCache.
func (w *World) released() *corev1.PersistentVolumeClaim {
	want := w.Claim.DeepCopy()
	for _, label := range []string{podmeta.LabelManagedBy, podmeta.LabelModelCache, podmeta.LabelModelCacheUID} {
		delete(want.Labels, label)
	}
	want.OwnerReferences = slices.DeleteFunc(want.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.Cache.UID })
	return want
}
