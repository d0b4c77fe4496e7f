package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ModelCache keeps a model on a PersistentVolumeClaim of its namespace, for launchers whose
// LauncherConfigs name that claim, and for other Pods that mount it. The controller creates
// a Pod that reads the Secret which the ModelCache names. Give the right to create
// ModelCaches only to users who may create Pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mc,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?$')",message="metadata.name should be at most 57 lower-case letters, digits and '-', because the name of its Job begins with it"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.uri`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.status.claimName`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="In-Use",type=integer,JSONPath=`.status.inUse`,description="Pods that mount the claim"
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
type ModelCache struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec ModelCacheSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status ModelCacheStatus `json:"status,omitempty"`
}

// ModelCacheSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.claimTemplate)",message="give either claim, for one that exists, or claimTemplate, for one that the controller creates"
// +kubebuilder:validation:XValidation:rule="has(self.claim) == has(oldSelf.claim) && (!has(self.claim) || self.claim.name == oldSelf.claim.name)",message="claim cannot be changed: create another ModelCache for another claim"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.reclaimPolicy) || self.reclaimPolicy == 'Retain'",message="reclaimPolicy Delete needs claimTemplate: the controller deletes only claims that it has created"
// +kubebuilder:validation:XValidation:rule="!has(self.credentials) || !has(self.credentials.secretRef) || self.source.uri.matches('^(hf|s3|gs|azblob|oci)://')",message="credentials.secretRef is for models whose uri begins with hf://, s3://, gs://, azblob:// or oci://"
type ModelCacheSpec struct {
	// Where the model comes from.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another ModelCache for another model or revision, and delete this one when it is no longer needed"
	Source ModelSource `json:"source"`

	// An existing claim. Several ModelCaches may name the same claim.
	// +optional
	Claim *ClaimReference `json:"claim,omitempty"`

	// The claim that the controller creates, with the name of the ModelCache.
	// +optional
	ClaimTemplate *ModelClaimTemplate `json:"claimTemplate,omitempty"`

	// What happens to the claim, and the copy in it, when the ModelCache is deleted.
	// Delete: the controller deletes them once no Pod mounts the claim. Retain: they stay,
	// without an owner. Default: Delete with claimTemplate, Retain with claim.
	// +optional
	ReclaimPolicy ModelReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// Credentials for the source. Without them the source gets none.
	// +optional
	Credentials *ModelClaimCredentials `json:"credentials,omitempty"`

	// Settings of the Job that fetches the model.
	// +optional
	Fetch ModelFetch `json:"fetch,omitempty"`
}

// ClaimReference names a PersistentVolumeClaim.
type ClaimReference struct {
	// Name of the claim.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ModelClaimTemplate describes the claim that the controller creates.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName) && self.accessModes == oldSelf.accessModes",message="only storage can be changed: create another ModelCache for another class or access mode"
type ModelClaimTemplate struct {
	// StorageClass of the claim. Without it the cluster's default applies.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// Access modes of the claim. ReadWriteOnce: on one node at a time. ReadWriteMany: on
	// all nodes.
	// +optional
	// +listType=set
	// +kubebuilder:default={"ReadWriteOnce"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod;ReadOnlyMany
	// +kubebuilder:validation:XValidation:rule="self.exists(m, m != 'ReadOnlyMany')",message="should have a mode that allows writing the model: ReadWriteOnce or ReadWriteMany"
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`

	// Size of the claim. It can grow later if its StorageClass allows that.
	// +required
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 100Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="cannot become less: Kubernetes does not shrink claims"
	Storage resource.Quantity `json:"storage"`
}

// ModelReclaimPolicy says what happens to the claim of a deleted ModelCache.
//
// +kubebuilder:validation:Enum=Delete;Retain
type ModelReclaimPolicy string

// The values of ModelReclaimPolicy.
const (
	ReclaimDelete ModelReclaimPolicy = "Delete"
	ReclaimRetain ModelReclaimPolicy = "Retain"
)

// Reclaim returns the reclaim policy of a ModelCache, with its default.
func (s *ModelCacheSpec) Reclaim() ModelReclaimPolicy {
	switch {
	case s.Claim != nil:
		return ReclaimRetain
	case s.ReclaimPolicy == "":
		return ReclaimDelete
	default:
		return s.ReclaimPolicy
	}
}

// ModelClaimCredentials say where the credentials for a model's source are.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || has(self.serviceAccountName)",message="give secretRef, serviceAccountName or both"
type ModelClaimCredentials struct {
	// A Secret in the namespace of the ModelCache. Its keys are variables such as HF_TOKEN;
	// spec/modelcache.md lists them.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// ServiceAccount of the Job. Its token is mounted, for sources with workload identity.
	// Without secretRef the Job also gets the Secret with keys for the source, of those
	// that the ServiceAccount lists as secrets or imagePullSecrets.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ModelFetch holds settings of a Job that fetches a model.
type ModelFetch struct {
	// How many files are fetched at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Streams *int32 `json:"streams,omitempty"`

	// Limit of the bytes that are fetched in a second, such as 100Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 100Mi"
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`

	// Environment variables with the addresses of sources and proxies, such as HF_ENDPOINT
	// or HTTPS_PROXY. Put secrets into a Secret.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Env map[string]string `json:"env,omitempty"`

	// A ConfigMap whose key ca.crt has the certificates that sources are checked against,
	// instead of the public ones.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CAConfigMap string `json:"caConfigMap,omitempty"`

	// User id of the Job, for claims that only some users may write. Use 0 if only root
	// may; the namespace must admit such Pods.
	// +optional
	// +kubebuilder:default=65532
	// +kubebuilder:validation:Minimum=0
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Labels of the nodes on which the Job may run.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints of nodes that the Job tolerates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ModelCacheStatus is the observed state.
type ModelCacheStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Available: the claim has the model whole. Resolved: the source's version is known.
	// Progressing: a Job fetches it, or the claim is being removed. Degraded: that failed.
	// CapacityExceeded: it failed because there is no room. CredentialsAccepted: the
	// credentials exist, and the source accepts them. DeletionBlocked: the object is being
	// deleted and the claim is still in use.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Revision of the model on the claim.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Size of the model on the claim.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// The size for people, such as 1.2 GiB.
	// +optional
	Size string `json:"size,omitempty"`
	// Whether include and exclude leave out files that an engine may need. If so, inference
	// servers that name the model do not read it from the claim.
	// +optional
	Lacks bool `json:"lacks,omitempty"`
	// Folder of the claim with the files of the model.
	// +optional
	Folder string `json:"folder,omitempty"`
	// Id of the version in the claim's store.
	// +optional
	ModelID string `json:"modelID,omitempty"`

	// Name of the claim.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// UID of the claim that has the model whole. A later claim of the same name does not
	// have it.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// How many Jobs failed in succession.
	// +optional
	FailedTries int32 `json:"failedTries,omitempty"`
	// Name of the Job that fetches the model, while there is one.
	// +optional
	Job string `json:"job,omitempty"`

	// Pods that mount the claim, without that of the Job.
	// +optional
	InUse int32 `json:"inUse"`
	// Names of those Pods, and of the inference servers that read the model; at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	InUseBy []string `json:"inUseBy,omitempty"`
}

// ModelCacheList is a list of ModelCache.
//
// +kubebuilder:object:root=true
type ModelCacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ModelCache `json:"items"`
}
