package modelvolume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// folder returns the folder with the files of a version, in the folder of a node that a
// ModelCacheNodeGroup names (spec/guide/how-it-works.md, "Models").
func folder(store, id string) string { return path.Join(store, "models", id, "files") }

// volumeName returns the name of the volume of a cache for a namespace. It is unique, because
// the name of a namespace has no dot.
func volumeName(at Place) string { return ClaimOf(at.Cache) + "." + at.Namespace }

// head returns the metadata of a volume or a claim. By the owner reference Kubernetes deletes it
// with the cache, even if no controller runs.
func head(cache *v1alpha1.ClusterModelCache, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Labels: map[string]string{podmeta.LabelModelVolume: cache.Name, podmeta.LabelManagedBy: podmeta.ManagedBy},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterModelCache", Name: cache.Name, UID: cache.UID,
		}},
	}
}

func size(cache *v1alpha1.ClusterModelCache) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(max(cache.Status.SizeBytes, 1), resource.BinarySI)}
}

// volume returns the volume of a cache for the claim of a namespace. It requires nodes that have
// the whole model. Its mounts are read-only, whatever the Pod says.
func volume(cache *v1alpha1.ClusterModelCache, at Place, store string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: head(cache, volumeName(at)),
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size(cache), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, VolumeMode: &mode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: at.Namespace, Name: ClaimOf(cache.Name)},
			MountOptions:                  []string{"ro"},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder(store, cache.Status.ID)}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: podmeta.ModelLabel(cache.Name), Operator: corev1.NodeSelectorOpIn, Values: []string{podmeta.ModelReady},
				}},
			}}}},
		},
	}
}

// claim returns the claim of a cache in a namespace.
func claim(cache *v1alpha1.ClusterModelCache, at Place) *corev1.PersistentVolumeClaim {
	mode, class := corev1.PersistentVolumeFilesystem, ""
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: head(cache, ClaimOf(cache.Name)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, VolumeMode: &mode, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: size(cache)}, VolumeName: volumeName(at),
		},
	}
	made.Namespace = at.Namespace
	return made
}

// of reports whether a volume belongs to this cache, and to the version that its nodes have.
func of(cache *v1alpha1.ClusterModelCache, v *corev1.PersistentVolume, store string) bool {
	return owned(cache, v) && v.Spec.Local != nil && v.Spec.Local.Path == folder(store, cache.Status.ID)
}

func owned(cache *v1alpha1.ClusterModelCache, o metav1.Object) bool {
	for _, owner := range o.GetOwnerReferences() {
		if owner.UID == cache.UID {
			return true
		}
	}
	return false
}
