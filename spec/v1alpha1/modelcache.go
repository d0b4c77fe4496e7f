package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterModelCache has a model kept on the nodes of one or more groups, so that
// every inference server there finds it near, whatever its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cmc,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits, '-' and '.'"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.uri`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.progress`,description="nodes that have it whole, of those that should"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="In-Use",type=integer,JSONPath=`.status.inUse`,description="inference servers and Pods that read it"
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
type ClusterModelCache struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is asked for.
	// +required
	Spec ClusterModelCacheSpec `json:"spec"`
	// What the controller tells.
	// +optional
	Status ClusterModelCacheStatus `json:"status,omitempty"`
}

// ClusterModelCacheSpec is what an administrator wants.
//
// +kubebuilder:validation:XValidation:rule="!has(self.credentials) || self.source.uri.matches('^(hf|s3|gs|azblob|oci)://')",message="credentials are for models whose uri begins with hf://, s3://, gs://, azblob:// or oci://"
// +kubebuilder:validation:XValidation:rule="has(self.nodeGroups) != has(self.nodeGroup)",message="nodeGroups should name the ModelCacheNodeGroups, or nodeGroup the only one"
type ClusterModelCacheSpec struct {
	// Where the model comes from.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another ClusterModelCache for another model or revision, and delete this one when nobody needs it any more"
	Source ModelSource `json:"source"`

	// How large it is said to be, such as 15Gi. A node does not fetch one whose size
	// differs by more than a tenth.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 15Gi"
	Size *resource.Quantity `json:"size,omitempty"`

	// The digest that it has to have, as status.digest and `launcher pull -o json` tell it:
	// sha256: and the SHA-256 of a line for each file, sorted by name, as sha256sum prints
	// them. A node does not have a model with another.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ExpectedDigest string `json:"expectedDigest,omitempty"`

	// Names of the ModelCacheNodeGroups whose nodes have it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	NodeGroups []string `json:"nodeGroups,omitempty"`
	// The same where it is one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	NodeGroup string `json:"nodeGroup,omitempty"`

	// What it means for requesters of the model that carry the scheduling gate
	// hotseat.dev/placement. Prefer: nodes that have the model are preferred. Require:
	// no other node is taken. None: it means nothing.
	// +optional
	// +kubebuilder:default=Prefer
	Scheduling ModelScheduling `json:"scheduling,omitempty"`

	// What becomes of a node's copy when its room is needed for another model and no
	// inference server uses it. Keep: it stays. LRU: it goes, the one that was used
	// longest ago first; it is fetched only where there is room for it without any
	// other's going, the first time as well.
	// +optional
	// +kubebuilder:default=Keep
	Retention ModelRetention `json:"retention,omitempty"`

	// What is done with a node's copy when it has been fetched, and when its launcher
	// starts. PageCache: it is read into main memory, as far as there is room without what
	// runs losing any of its own, so that the next start is from there. None: nothing.
	// +optional
	// +kubebuilder:default=None
	Warm ModelWarming `json:"warm,omitempty"`

	// What becomes of an inference server that names the model on a node whose launcher
	// does not have it whole. Download: its engine finds the model by itself. Wait: the
	// requester waits until the launcher has it. Fail: the start fails, and is tried again
	// as any that failed. Who has the annotation hotseat.dev/model-cache has said
	// otherwise: on a requester it counts in place of this, on a namespace where it is off
	// or require.
	// +optional
	// +kubebuilder:default=Download
	OnMissing ModelMissing `json:"onMissing,omitempty"`

	// What is shown to the source; without it what the launchers have in their own
	// environment, if anything.
	// +optional
	Credentials *ModelCredentials `json:"credentials,omitempty"`
}

// Groups are the names of its ModelCacheNodeGroups.
func (s *ClusterModelCacheSpec) Groups() []string {
	if s.NodeGroup != "" {
		return []string{s.NodeGroup}
	}
	return s.NodeGroups
}

// ModelCredentials say where credentials for a model's source are. The launchers of the
// node groups are told them.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.serviceAccountName)",message="give either secretRef or serviceAccountName"
type ModelCredentials struct {
	// The Secret, in the namespace in which hotseat is installed. Its keys are variables
	// such as HF_TOKEN; spec/modelcache.md lists them.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// A ServiceAccount of that namespace: of the Secrets that it lists, as secrets or as
	// imagePullSecrets, the one that has what the source takes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Whether every inference server may read what they have fetched. Without it each
	// shows a right of its own: the source has to let it read the model by the
	// credentials in its environment or in that of its launcher.
	// +optional
	Shared bool `json:"shared,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// Its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="should be the name of a Secret"
	Name string `json:"name"`
}

// ModelRetention is what becomes of copies when room is needed.
//
// +kubebuilder:validation:Enum=Keep;LRU
type ModelRetention string

// What may become of them.
const (
	RetentionKeep ModelRetention = "Keep"
	RetentionLRU  ModelRetention = "LRU"
)

// ModelWarming is what is done with a copy before somebody asks for it.
//
// +kubebuilder:validation:Enum=None;PageCache
type ModelWarming string

// What may be done.
const (
	WarmNone      ModelWarming = "None"
	WarmPageCache ModelWarming = "PageCache"
)

// ModelMissing is what becomes of inference servers whose model is not there.
//
// +kubebuilder:validation:Enum=Fail;Wait;Download
type ModelMissing string

// What may become of them.
const (
	MissingFail     ModelMissing = "Fail"
	MissingWait     ModelMissing = "Wait"
	MissingDownload ModelMissing = "Download"
)

// ModelScheduling is what it means for requesters that a node has their model.
//
// +kubebuilder:validation:Enum=None;Prefer;Require
type ModelScheduling string

// What it may mean.
const (
	SchedulingNone    ModelScheduling = "None"
	SchedulingPrefer  ModelScheduling = "Prefer"
	SchedulingRequire ModelScheduling = "Require"
)

// ModelSource says which model it is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.revision) || self.uri.startsWith('hf://')",message="revision is for models of the hub, whose uri begins with hf://: other sources have one version at a time"
type ModelSource struct {
	// Address of the model, as `launcher pull` takes them: hf://org/name,
	// https://host/path/of/folder, s3://bucket/folder, gs://bucket/folder,
	// azblob://container/folder, oci://registry/repository:tag, file:///folder, or
	// pvc://claim/folder where the claim is mounted.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z0-9+.-]*://.')",message="should be an address as hf://org/name"
	// +kubebuilder:validation:XValidation:rule="(!self.contains('@') || self.matches('^oci://[^@]+@sha256:[0-9a-f]{64}$')) && !self.contains('?') && !self.contains('#')",message="should have no revision, user, query or fragment in it: a revision is a field of its own"
	URI string `json:"uri"`

	// Of a model of the hub: a branch, a tag or a commit; main where it is missing.
	// What a branch was when the first node asked is what all nodes have.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._/-]*$')",message="should be a branch, a tag or a commit"
	Revision string `json:"revision,omitempty"`

	// Patterns of the files that are kept, as those of hf download --include: * is any
	// text, slashes too; ? is one character; [a-z] one of a set; a folder ends with a
	// slash. Without any it is all files. Each has to match a file.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, !p.startsWith('/'))",message="patterns are of names below the model's folder, and begin without a slash"
	Include []string `json:"include,omitempty"`

	// Patterns of files that are left out, though include may match them. Inference
	// servers that name the model read the copy only where nothing is left out that an
	// engine may need. Weights of a format that is there in another whole, documents,
	// and the folders original, onnx, openvino, coreml and metal may be left out.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, !p.startsWith('/'))",message="patterns are of names below the model's folder, and begin without a slash"
	Exclude []string `json:"exclude,omitempty"`
}

// ModelNodeState is how far a node is.
//
// +kubebuilder:validation:Enum=Waiting;Downloading;Ready;Failed;Removing
type ModelNodeState string

// The states of a model on a node.
const (
	ModelNodeWaiting     ModelNodeState = "Waiting"
	ModelNodeDownloading ModelNodeState = "Downloading"
	ModelNodeReady       ModelNodeState = "Ready" // whole, by what its launcher said last
	ModelNodeFailed      ModelNodeState = "Failed"
	ModelNodeRemoving    ModelNodeState = "Removing"
)

// ModelNode is a model on one node.
type ModelNode struct {
	// Name of the node.
	Node string `json:"node"`
	// How far it is: Waiting, Downloading, Ready, Failed or Removing.
	State ModelNodeState `json:"state"`
	// While it is fetched: how much of it is there.
	// +optional
	Percent int32 `json:"percent,omitempty"`
	// What is waited for, or what has failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
	// Whose leases keep it there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	InUseBy []string `json:"inUseBy,omitempty"`
}

// ClusterModelCacheStatus is what the controller tells.
type ClusterModelCacheStatus struct {
	// Generation of the object that the status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Available: every node that should has it. Progressing: it is fetched or removed
	// somewhere. Degraded: somewhere that has failed. CredentialsAccepted, where
	// credentials are named: they are there, are what the source takes, and were not
	// refused.
	// DeletionBlocked, while it is deleted: who keeps it. Mountable, while Pods name its
	// claim: whether it is made for them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Which version of the source the nodes have, once the first of them knows.
	// +optional
	Revision string `json:"revision,omitempty"`
	// What it consists of, by the hashes of its files; see spec.expectedDigest.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Id of that version in the folders of the nodes. Empty: not known yet, or not the
	// same on all, as of file://.
	// +optional
	ID string `json:"id,omitempty"`
	// Name of the PersistentVolumeClaim by which Pods of any namespace mount it. The
	// controller makes it where a Pod names it. Empty: none is made; of a model whose
	// credentials are not shared, whose node groups have different folders, or whose
	// nodes have different versions.
	// +optional
	Claim string `json:"claim,omitempty"`
	// What it takes on a disk.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// The same for people, such as 1.2 GiB.
	// +optional
	Size string `json:"size,omitempty"`

	// Nodes that should have it.
	// +optional
	Desired int32 `json:"desired"`
	// Nodes that have it whole.
	// +optional
	Ready int32 `json:"ready"`
	// Nodes that fetch it.
	// +optional
	Downloading int32 `json:"downloading"`
	// Nodes that could not fetch it.
	// +optional
	Failed int32 `json:"failed"`
	// Nodes that have it whole, of those that should, as 2/3.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Inference servers that read it, awake or asleep, and Pods that mount it.
	// +optional
	InUse int32 `json:"inUse"`

	// The nodes, sorted by name. Where there are more than have room, some that are
	// Ready are left out first, and nodesLeftOut counts what is left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Nodes []ModelNode `json:"nodes,omitempty"`
	// Nodes that are not in the list.
	// +optional
	NodesLeftOut int32 `json:"nodesLeftOut,omitempty"`
}

// MaxListedNodes is how many nodes the status of a ClusterModelCache lists.
const MaxListedNodes = 200

// ClusterModelCacheList is a list of ClusterModelCache.
//
// +kubebuilder:object:root=true
type ClusterModelCacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterModelCache `json:"items"`
}
