package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ModelCache has a model kept on a PersistentVolumeClaim of its namespace, for the
// launchers whose LauncherConfigs name that claim, and for any other Pod that mounts it.
// Who may make one has a Pod made that reads the Secret it names: the right to make
// ModelCaches is for those who may make Pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mc,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?$')",message="metadata.name should be at most 57 lower-case letters, digits and '-': its Job is named after it"
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

	// What is asked for.
	// +required
	Spec ModelCacheSpec `json:"spec"`
	// What the controller tells.
	// +optional
	Status ModelCacheStatus `json:"status,omitempty"`
}

// ModelCacheSpec is what a user wants.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.claimTemplate)",message="give either claim, one that is there, or claimTemplate, one that is made"
// +kubebuilder:validation:XValidation:rule="has(self.claim) == has(oldSelf.claim) && (!has(self.claim) || self.claim.name == oldSelf.claim.name)",message="claim cannot be changed: make another ModelCache for another claim"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.reclaimPolicy) || self.reclaimPolicy == 'Retain'",message="reclaimPolicy Delete is for a claim that is made by claimTemplate: one that was there before is its owner's to delete"
// +kubebuilder:validation:XValidation:rule="!has(self.credentials) || !has(self.credentials.secretRef) || self.source.uri.matches('^(hf|s3|gs|azblob|oci)://')",message="credentials.secretRef is for models whose uri begins with hf://, s3://, gs://, azblob:// or oci://"
type ModelCacheSpec struct {
	// Where the model comes from.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another ModelCache for another model or revision, and delete this one when nobody needs it any more"
	Source ModelSource `json:"source"`

	// A claim that is there. Several ModelCaches may name the same one.
	// +optional
	Claim *ClaimReference `json:"claim,omitempty"`

	// The claim that is made, with the name of the ModelCache.
	// +optional
	ClaimTemplate *ModelClaimTemplate `json:"claimTemplate,omitempty"`

	// What becomes of a claim that was made, and of the copy in it, when the ModelCache
	// is deleted. Delete: they go, once no Pod mounts the claim. Retain: they stay, and are
	// nobody's. Without it: Delete where the claim was made, Retain where it was there.
	// +optional
	ReclaimPolicy ModelReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// What is shown to the source; without it nothing is.
	// +optional
	Credentials *ModelClaimCredentials `json:"credentials,omitempty"`

	// Of the Job that fetches the model.
	// +optional
	Fetch ModelFetch `json:"fetch,omitempty"`
}

// ClaimReference names a PersistentVolumeClaim.
type ClaimReference struct {
	// Its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ModelClaimTemplate says which claim is made.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName) && self.accessModes == oldSelf.accessModes",message="of a claim that is made, storage alone can be changed: make another ModelCache for another class or mode of access"
type ModelClaimTemplate struct {
	// Its StorageClass; without it that of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// How it is mounted. ReadWriteOnce is on one node at a time, ReadWriteMany on all.
	// +optional
	// +listType=set
	// +kubebuilder:default={"ReadWriteOnce"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadWriteMany;ReadWriteOncePod;ReadOnlyMany
	// +kubebuilder:validation:XValidation:rule="self.exists(m, m != 'ReadOnlyMany')",message="should have a mode in which the model can be written: ReadWriteOnce or ReadWriteMany"
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`

	// How large it is. It can be made larger later where its StorageClass allows that.
	// +required
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 100Gi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || !isQuantity(string(oldSelf)) || quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",message="cannot become less: Kubernetes makes no claim smaller"
	Storage resource.Quantity `json:"storage"`
}

// ModelReclaimPolicy is what becomes of a claim.
//
// +kubebuilder:validation:Enum=Delete;Retain
type ModelReclaimPolicy string

// What may become of it.
const (
	ReclaimDelete ModelReclaimPolicy = "Delete"
	ReclaimRetain ModelReclaimPolicy = "Retain"
)

// Reclaim is what becomes of the claim of a ModelCache.
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

// ModelClaimCredentials say what is shown to the source.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) || has(self.serviceAccountName)",message="give secretRef, serviceAccountName or both"
type ModelClaimCredentials struct {
	// A Secret of the ModelCache's own namespace. Its keys are variables such as
	// HF_TOKEN; spec/modelcache.md lists them.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// The ServiceAccount of the Job, whose token is mounted: for sources that know it
	// (workload identity). Without secretRef also: of the Secrets that it lists, as
	// secrets or as imagePullSecrets, the one that has what the source takes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ModelFetch is how a Job fetches a model.
type ModelFetch struct {
	// Files that are fetched at the same time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Streams *int32 `json:"streams,omitempty"`

	// What is fetched in a second at most, such as 100Mi.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 100Mi"
	BytesPerSecond *resource.Quantity `json:"bytesPerSecond,omitempty"`

	// Variables that say where sources and proxies are, such as HF_ENDPOINT or
	// HTTPS_PROXY. What is secret belongs into a Secret.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Env map[string]string `json:"env,omitempty"`

	// A ConfigMap whose key ca.crt has the certificates by which sources are trusted, in
	// place of the public ones.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	CAConfigMap string `json:"caConfigMap,omitempty"`

	// The user by whom the claim is written, for claims that are not let be written by
	// just any: 0 for one that root alone may write to, which takes a namespace that
	// admits such Pods.
	// +optional
	// +kubebuilder:default=65532
	// +kubebuilder:validation:Minimum=0
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// Labels of the nodes where it may run.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints of nodes that it tolerates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// ModelCacheStatus is what the controller tells.
type ModelCacheStatus struct {
	// Generation of the object that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Available: the claim has the model whole. Resolved: it is known which version the
	// source has. Progressing: a Job fetches it, or the claim is removed. Degraded: that
	// has failed. CapacityExceeded, where that is for want of room. CredentialsAccepted,
	// where credentials are named. DeletionBlocked, while it is deleted: who keeps it.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Which version of the source the claim has.
	// +optional
	Revision string `json:"revision,omitempty"`
	// What it takes there.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// The same for people, such as 1.2 GiB.
	// +optional
	Size string `json:"size,omitempty"`
	// The selection of its files leaves out what an engine may need: inference servers that
	// name the model do not read it from the claim.
	// +optional
	Lacks bool `json:"lacks,omitempty"`
	// Folder of the claim that has the model's files.
	// +optional
	Folder string `json:"folder,omitempty"`
	// Id of the version in the claim's store.
	// +optional
	ModelID string `json:"modelID,omitempty"`

	// The claim.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// UID of the claim that has the model whole: another one of that name has it not.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// Jobs that have failed in succession.
	// +optional
	FailedTries int32 `json:"failedTries,omitempty"`
	// The Job that fetches it, while there is one.
	// +optional
	Job string `json:"job,omitempty"`

	// Pods that mount the claim, but for the Job's.
	// +optional
	InUse int32 `json:"inUse"`
	// Who they are, and which inference servers read the model; at most 16.
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
