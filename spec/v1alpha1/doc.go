// Package v1alpha1 holds the custom resources of group hotseat.dev:
// [InferenceServerConfig], which says what an inference server is,
// [LauncherConfig], which says what launchers there are, [ClusterModelCache] and
// [ModelCacheNodeGroup], which say what models are kept on which nodes, and
// [ModelCache], which has one kept on a PersistentVolumeClaim.
//
// +kubebuilder:object:generate=true
// +groupName=hotseat.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "hotseat.dev", Version: "v1alpha1"}

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&InferenceServerConfig{}, &InferenceServerConfigList{},
		&LauncherConfig{}, &LauncherConfigList{},
		&ClusterModelCache{}, &ClusterModelCacheList{},
		&ModelCacheNodeGroup{}, &ModelCacheNodeGroupList{},
		&ModelCache{}, &ModelCacheList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
