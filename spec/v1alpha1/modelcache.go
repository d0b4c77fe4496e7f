package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterModelCache keeps a model on the nodes of one or more groups, for inference
// servers of all namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cmc,categories=hotseat
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$')",message="metadata.name should be at most 63 lower-case letters, digits, '-' and '.'"
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.uri`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.progress`,description="nodes that have the model, of those that should"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="In-Use",type=integer,JSONPath=`.status.inUse`,description="inference servers and Pods that read the model"
// +kubebuilder:printcolumn:name="Revision",type=string,priority=1,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
type ClusterModelCache struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state.
	// +required
	Spec ClusterModelCacheSpec `json:"spec"`
	// Observed state, written by the controller.
	// +optional
	Status ClusterModelCacheStatus `json:"status,omitempty"`
}

// ClusterModelCacheSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.credentials) || self.source.uri.matches('^(hf|s3|gs|azblob|oci)://')",message="credentials are for models whose uri begins with hf://, s3://, gs://, azblob:// or oci://"
// +kubebuilder:validation:XValidation:rule="has(self.nodeGroups) != has(self.nodeGroup)",message="give either nodeGroups, the names of ModelCacheNodeGroups, or nodeGroup, the name of one"
type ClusterModelCacheSpec struct {
	// Where the model comes from.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another ClusterModelCache for another model or revision, and delete this one when it is no longer needed"
	Source ModelSource `json:"source"`

	// How large the model may be, such as 15Gi. A node does not fetch a larger model.
	// expectedDigest names the exact content.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).isInteger() && quantity(string(self)).asInteger() > 0",message="should be a number of bytes above zero, such as 15Gi"
	Size *resource.Quantity `json:"size,omitempty"`

	// Expected digest of the model, as status.digest and `launcher pull -o json` show it:
	// sha256: and the SHA-256 of the output of sha256sum for all files, sorted by name. A
	// node does not keep a model with another digest.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ExpectedDigest string `json:"expectedDigest,omitempty"`

	// Names of the ModelCacheNodeGroups whose nodes keep the model.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	NodeGroups []string `json:"nodeGroups,omitempty"`
	// Name of the ModelCacheNodeGroup, if it is only one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	NodeGroup string `json:"nodeGroup,omitempty"`

	// How requesters of the model with the scheduling gate hotseat.dev/placement are
	// scheduled. Prefer: preferably on nodes that have the model. Require: only on nodes
	// that have the model. None: on any node.
	// +optional
	// +kubebuilder:default=Prefer
	Scheduling ModelScheduling `json:"scheduling,omitempty"`

	// What happens to a node's copy when another model needs its room and no inference
	// server uses it. Keep: it stays. LRU: the launcher evicts it, the least recently used
	// first. A model with LRU is fetched only if there is room without evicting another,
	// also the first time.
	// +optional
	// +kubebuilder:default=Keep
	Retention ModelRetention `json:"retention,omitempty"`

	// The launcher does this with its copy after the fetch and when it starts.
	// PageCache: it reads the copy into free main memory, so that the next start reads it
	// from there. None: nothing.
	// +optional
	// +kubebuilder:default=None
	Warm ModelWarming `json:"warm,omitempty"`

	// What happens to an inference server whose launcher does not have the model whole.
	// Download: its engine finds the model by itself. Wait: the requester waits until the
	// launcher has the model. Fail: the start fails and is retried as any failed start. The
	// annotation hotseat.dev/model-cache overrides this: on a requester always, on a
	// namespace with the values off and require.
	// +optional
	// +kubebuilder:default=Download
	OnMissing ModelMissing `json:"onMissing,omitempty"`

	// Credentials for the source. Without them launchers use those of their own
	// environment, if any.
	// +optional
	Credentials *ModelCredentials `json:"credentials,omitempty"`
}

// Groups returns the names of its ModelCacheNodeGroups.
func (s *ClusterModelCacheSpec) Groups() []string {
	if s.NodeGroup != "" {
		return []string{s.NodeGroup}
	}
	return s.NodeGroups
}

// ModelCredentials say where the credentials for a model's source are. The controller
// sends them to the launchers of the node groups.
//
// +kubebuilder:validation:XValidation:rule="has(self.secretRef) != has(self.serviceAccountName)",message="give either secretRef or serviceAccountName"
type ModelCredentials struct {
	// A Secret in the namespace of the hotseat installation. Its keys are variables such as
	// HF_TOKEN; spec/modelcache.md lists them.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// A ServiceAccount in that namespace. The controller uses the Secret with keys for the
	// source, of those that the ServiceAccount lists as secrets or imagePullSecrets.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Whether all inference servers may read what was fetched with these credentials.
	// Without it each must prove its own right: the source must accept the credentials in
	// its environment or in that of its launcher.
	// +optional
	Shared bool `json:"shared,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="should be the name of a Secret"
	Name string `json:"name"`
}

// ModelRetention says what happens to copies when another model needs their room.
//
// +kubebuilder:validation:Enum=Keep;LRU
type ModelRetention string

// The values of ModelRetention.
const (
	RetentionKeep ModelRetention = "Keep"
	RetentionLRU  ModelRetention = "LRU"
)

// ModelWarming says what a launcher does with a copy in advance.
//
// +kubebuilder:validation:Enum=None;PageCache
type ModelWarming string

// The values of ModelWarming.
const (
	WarmNone      ModelWarming = "None"
	WarmPageCache ModelWarming = "PageCache"
)

// ModelMissing says what happens to inference servers whose launcher lacks the model.
//
// +kubebuilder:validation:Enum=Fail;Wait;Download
type ModelMissing string

// The values of ModelMissing.
const (
	MissingFail     ModelMissing = "Fail"
	MissingWait     ModelMissing = "Wait"
	MissingDownload ModelMissing = "Download"
)

// ModelScheduling says whether requesters are scheduled on nodes that have their model.
//
// +kubebuilder:validation:Enum=None;Prefer;Require
type ModelScheduling string

// The values of ModelScheduling.
const (
	SchedulingNone    ModelScheduling = "None"
	SchedulingPrefer  ModelScheduling = "Prefer"
	SchedulingRequire ModelScheduling = "Require"
)

// ModelSource names a model at its source.
//
// +kubebuilder:validation:XValidation:rule="!has(self.revision) || self.uri.startsWith('hf://')",message="revision is for models of the hub, whose uri begins with hf://; other sources have one version at a time"
type ModelSource struct {
	// Address of the model, as for `launcher pull`: hf://org/name,
	// https://host/path/of/folder, s3://bucket/folder, gs://bucket/folder,
	// azblob://container/folder, oci://registry/repository:tag, ollama://name:tag,
	// file:///folder, or pvc://claim/folder for a claim that launchers mount.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z][a-z0-9+.-]*://.')",message="should be an address such as hf://org/name"
	// +kubebuilder:validation:XValidation:rule="(!self.contains('@') || self.matches('^oci://[^@]+@sha256:[0-9a-f]{64}$')) && !self.contains('?') && !self.contains('#')",message="should have no revision, user, query or fragment: put the revision into the field revision"
	URI string `json:"uri"`

	// For a model of the hub: a branch, a tag or a commit; without it main. All nodes keep
	// the commit that the branch had when the first node asked.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9][A-Za-z0-9._/-]*$')",message="should be a branch, a tag or a commit"
	Revision string `json:"revision,omitempty"`

	// Patterns of the files to keep, as for hf download --include: * matches any text,
	// including slashes; ? matches one character; [a-z] matches one of a set; a folder ends
	// with a slash. Without patterns all files are kept. Each pattern must match a file.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, !p.startsWith('/'))",message="patterns are of names below the model's folder, and begin without a slash"
	Include []string `json:"include,omitempty"`

	// Patterns of files to leave out, even if include matches them. Inference servers read
	// the copy only if it has all files that an engine may need. These may be left out:
	// weights that the copy has whole in another format, documents, and the folders
	// original, onnx, openvino, coreml and metal.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.all(p, !p.startsWith('/'))",message="patterns are of names below the model's folder, and begin without a slash"
	Exclude []string `json:"exclude,omitempty"`
}

// ModelNodeState is the state of a model on a node.
//
// +kubebuilder:validation:Enum=Waiting;Downloading;Ready;Failed;Removing
type ModelNodeState string

// The states of a model on a node.
const (
	ModelNodeWaiting     ModelNodeState = "Waiting"
	ModelNodeDownloading ModelNodeState = "Downloading"
	ModelNodeReady       ModelNodeState = "Ready" // the launcher last reported the model as whole
	ModelNodeFailed      ModelNodeState = "Failed"
	ModelNodeRemoving    ModelNodeState = "Removing"
)

// ModelNode tells the state of the model on one node.
type ModelNode struct {
	// Name of the node.
	Node string `json:"node"`
	// State of the model there: Waiting, Downloading, Ready, Failed or Removing.
	State ModelNodeState `json:"state"`
	// During a fetch: the percentage of bytes that the node has.
	// +optional
	Percent int32 `json:"percent,omitempty"`
	// The reason why the node waits, or why it failed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Why string `json:"why,omitempty"`
	// Inference servers whose leases keep the model on the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	InUseBy []string `json:"inUseBy,omitempty"`
}

// ClusterModelCacheStatus is the observed state.
type ClusterModelCacheStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Available: all nodes of the groups have the model. Resolved: the source's version is
	// known. Progressing: a node fetches or removes it. Degraded: a node failed to.
	// CapacityExceeded: a node failed because it has no room. CredentialsAccepted: the
	// credentials exist, and the source accepts them. DeletionBlocked: the object is being
	// deleted and the model is still in use. Mountable: the claim that Pods name can be
	// created.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Revision of the model on the nodes, once the first of them knows it.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Digest of the hashes of its files; see spec.expectedDigest.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Id of that version in the folders of the nodes. Empty while it is unknown, or if the
	// nodes differ, as they may with file://.
	// +optional
	ID string `json:"id,omitempty"`
	// Name of the PersistentVolumeClaim by which Pods of any namespace mount the model. The
	// controller creates it in the namespace of a Pod that names it. Empty if the
	// credentials are not shared, if the node groups have different folders, or if the
	// nodes have different versions: then no claim is created.
	// +optional
	Claim string `json:"claim,omitempty"`
	// Size of the model on a disk.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// The size for people, such as 1.2 GiB.
	// +optional
	Size string `json:"size,omitempty"`

	// Nodes that should have the model.
	// +optional
	Desired int32 `json:"desired"`
	// Nodes that have the model whole.
	// +optional
	Ready int32 `json:"ready"`
	// Nodes that are fetching the model.
	// +optional
	Downloading int32 `json:"downloading"`
	// Nodes that failed to fetch the model.
	// +optional
	Failed int32 `json:"failed"`
	// Nodes that have the model, of those that should, such as 2/3.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Inference servers that read the model, awake or asleep, and Pods that mount it.
	// +optional
	InUse int32 `json:"inUse"`

	// The nodes, sorted by name. A list that is too long is shortened, by Ready nodes
	// first, and nodesLeftOut counts the rest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Nodes []ModelNode `json:"nodes,omitempty"`
	// How many nodes the list leaves out.
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
