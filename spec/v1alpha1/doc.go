// Package v1alpha1 holds the custom resources of group hotseat.dev.
// [InferenceServerConfig] describes an inference server, [LauncherConfig] the launchers.
// [ClusterModelCache] and [ModelCacheNodeGroup] keep models on nodes, and [ModelCache]
// keeps a model on a PersistentVolumeClaim. [ModelServing] describes groups of servers, and
// [RoleScaler] has the number of replicas of a role that an autoscaler changes.
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

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&InferenceServerConfig{}, &InferenceServerConfigList{},
		&LauncherConfig{}, &LauncherConfigList{},
		&ClusterModelCache{}, &ClusterModelCacheList{},
		&ModelCacheNodeGroup{}, &ModelCacheNodeGroupList{},
		&ModelCache{}, &ModelCacheList{},
		&ModelServing{}, &ModelServingList{},
		&RoleScaler{}, &RoleScalerList{},
		&Model{}, &ModelList{},
		&ResourceProfile{}, &ResourceProfileList{},
		&SeatPool{}, &SeatPoolList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
