package v1alpha1

// Types of conditions.
const (
	// ConditionAccepted is true while the controller can work by the spec.
	ConditionAccepted = "Accepted"
	// ConditionAvailable is true on a LauncherConfig while every launcher that
	// there should be is ready, and on an InferenceServerConfig while every Pod
	// that asks for it is.
	ConditionAvailable = "Available"
	// ConditionAllocationsChecked is true on a LauncherConfig while the GPUs that
	// requesters name are compared with those that the kubelet gave them.
	ConditionAllocationsChecked = "AllocationsChecked"
)

// Reasons of ConditionAccepted.
const (
	ReasonAccepted              = "Accepted"
	ReasonInvalid               = "Invalid"               // the spec says something that means nothing
	ReasonLauncherConfigMissing = "LauncherConfigMissing" // an InferenceServerConfig names one that is not there
	ReasonMalformedTemplate     = "MalformedTemplate"     // the podTemplate of a LauncherConfig is no Pod template
	ReasonNameTaken             = "NameTaken"             // a Secret or DaemonSet that a LauncherConfig is to have is there, and is somebody else's
)

// Reasons of ConditionAvailable.
const (
	ReasonAllReady   = "AllReady"
	ReasonNotReady   = "NotReady"
	ReasonNoNodes    = "NoNodes"    // with mode PerNode: no node fits
	ReasonNoneNeeded = "NoneNeeded" // with mode OnDemand: nobody asked for one yet; of an InferenceServerConfig: no Pod asks for it
)

// Reasons of ConditionAllocationsChecked.
const (
	ReasonKubeletAsked  = "KubeletAsked"
	ReasonRequesterOnly = "RequesterOnly" // a requester's own word counts
)

// Types of conditions of a ClusterModelCache, besides ConditionAvailable.
const (
	// ConditionResolved is true once it is known which version the source has.
	ConditionResolved = "Resolved"
	// ConditionProgressing is true while the model is fetched or removed somewhere.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true while a node could not fetch the model.
	ConditionDegraded = "Degraded"
	// ConditionCapacityExceeded is true while that is for want of room.
	ConditionCapacityExceeded = "CapacityExceeded"
	// ConditionCredentialsAccepted is true while the Secret or the ServiceAccount that is
	// named is there, has what the source takes, and the source has not refused that. It
	// is there where one is named.
	ConditionCredentialsAccepted = "CredentialsAccepted"
	// ConditionMountable is true where the model can be mounted by a claim. It is there
	// while Pods name that.
	ConditionMountable = "Mountable"
	// ConditionDeletionBlocked is true while the object is deleted and something keeps
	// the model on a node.
	ConditionDeletionBlocked = "DeletionBlocked"
)

// Reasons of the conditions of a ClusterModelCache, besides ReasonAllReady,
// ReasonNotReady and ReasonNoNodes. A failure has the launcher's code for it as its
// reason, such as NotFound.
const (
	ReasonResolved         = "Resolved"
	ReasonNotAsked         = "NotAsked" // no launcher has asked the source yet
	ReasonAsked            = "Asked"    // one has, or does, and knows no version yet
	ReasonNodeGroupMissing = "NodeGroupMissing"
	ReasonDownloading      = "Downloading"
	ReasonRemoving         = "Removing"
	ReasonIdle             = "Idle"
	ReasonNoneFailed       = "NoneFailed"
	ReasonFailed           = "Failed" // for no reason that has a code
	ReasonInUse            = "InUse"
	ReasonSecretRead       = "SecretRead"
	ReasonSecretMissing    = "SecretMissing" // also: a ServiceAccount lists none that has what the source takes
	ReasonSecretInvalid    = "SecretInvalid" // it has a key that is not known, or lacks one; or two say different things
	ReasonAccountMissing   = "ServiceAccountMissing"
	ReasonAccessDenied     = "AccessDenied"
	ReasonClaimed          = "Claimed"         // Pods mount the model by its claim
	ReasonPrivate          = "Private"         // its credentials are not shared
	ReasonSeveralVersions  = "SeveralVersions" // its nodes have different ones
	ReasonSeveralFolders   = "SeveralFolders"  // its node groups have different ones, and a volume has one
)

// Reasons of the conditions of a ModelCache, besides those.
const (
	ReasonWhole        = "Whole"              // the claim has the model
	ReasonAccountUsed  = "ServiceAccountUsed" // its Job runs as that, and is shown no Secret
	ReasonPreparing    = "Preparing"          // something is made that is there in a moment
	ReasonClaimMissing = "ClaimMissing"       // there is no claim of that name, or it is being deleted
	ReasonClaimPending = "ClaimPending"       // it has no volume yet
	ReasonClaimRefused = "ClaimRefused"       // the API server lets it not be made, or not be changed so
	ReasonJobRefused   = "JobRefused"         // likewise its Job, as one with a variable whose name is none
)
