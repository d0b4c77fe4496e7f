package modelvolume

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// folder is where a version of a model has its files, in the folder of a node that a
// ModelCacheNodeGroup names (spec/guide/how-it-works.md, "Models").
func folder(store, id string) string { return path.Join(store, "models", id, "files") }

// volumeName is that of the volume of a cache for a namespace, whose name has no dot.
func volumeName(at Place) string { return ClaimOf(at.Cache) + "." + at.Namespace }

// head has both go with the cache, also where no controller runs.
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

// volume is that of a cache for the claim of a namespace: on nodes that have the model
// whole. A mount is read-only, whatever the Pod says.
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

// claim is that of a cache in a namespace.
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

// of says that a volume is of this object and of the version that its nodes have.
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
