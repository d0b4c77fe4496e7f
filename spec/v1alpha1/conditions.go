package v1alpha1

// Types of conditions.
const (
	// ConditionAccepted is true while the spec is valid and what it names exists.
	ConditionAccepted = "Accepted"
	// ConditionAvailable is true on a LauncherConfig while all of its launchers are ready, on an
	// InferenceServerConfig while all Pods that name it are, and on a ModelServing while all of its
	// groups run.
	ConditionAvailable = "Available"
	// ConditionAllocationsChecked is true on a LauncherConfig while the controller
	// compares the GPUs that requesters report with those that the kubelet allocated.
	ConditionAllocationsChecked = "AllocationsChecked"
	// ConditionUpToDate is true on a LauncherConfig while all of its launchers have its
	// template.
	ConditionUpToDate = "UpToDate"
	// ConditionProtectedFromEviction is true on a LauncherConfig while its launchers have a
	// priority above that of ordinary Pods.
	ConditionProtectedFromEviction = "ProtectedFromEviction"
)

// Reasons of ConditionAccepted.
const (
	ReasonAccepted              = "Accepted"
	ReasonInvalid               = "Invalid"               // the spec has a mistake
	ReasonLauncherConfigMissing = "LauncherConfigMissing" // an InferenceServerConfig names a LauncherConfig that does not exist
	ReasonMalformedTemplate     = "MalformedTemplate"     // the podTemplate of a LauncherConfig is not a valid Pod template
	ReasonNameTaken             = "NameTaken"             // a Secret or DaemonSet with the name that a LauncherConfig needs has another owner
)

// Reasons of ConditionAvailable.
const (
	ReasonAllReady   = "AllReady"
	ReasonNotReady   = "NotReady"
	ReasonNoNodes    = "NoNodes"    // with mode PerNode: no node matches
	ReasonNoneNeeded = "NoneNeeded" // with mode OnDemand: no requester needs a launcher; of an InferenceServerConfig: no Pod names it
)

// Reasons of ConditionAllocationsChecked.
const (
	ReasonKubeletAsked  = "KubeletAsked"
	ReasonRequesterOnly = "RequesterOnly" // the controller trusts the requester's report
)

// Reasons of ConditionUpToDate, besides ReasonInUse: all that are left have requesters, or
// are on nodes with taints.
const (
	ReasonUpToDate     = "UpToDate"
	ReasonRollingOut   = "RollingOut"
	ReasonPaused       = "Paused"       // spec.rollout.maxUnavailable is 0
	ReasonNodesTainted = "NodesTainted" // all that are left are on nodes that would not accept a new launcher
)

// Reasons of ConditionProtectedFromEviction.
const (
	ReasonPrioritized = "Prioritized"
	ReasonNoPriority  = "NoPriority" // no PriorityClass, or one whose priority is 0 or less
)

// Types of conditions of a ClusterModelCache, besides ConditionAvailable.
const (
	// ConditionResolved is true once the source's version of the model is known.
	ConditionResolved = "Resolved"
	// ConditionProgressing is true while a node fetches or removes the model; on a ModelServing,
	// while a group changes.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is true while a node has failed to fetch the model.
	ConditionDegraded = "Degraded"
	// ConditionCapacityExceeded is true while a node has failed because it has no room.
	ConditionCapacityExceeded = "CapacityExceeded"
	// ConditionCredentialsAccepted is true while the Secret or ServiceAccount that the spec
	// names exists, has what the source takes, and the source has not refused it. The
	// condition is absent if the spec names neither.
	ConditionCredentialsAccepted = "CredentialsAccepted"
	// ConditionMountable is true if Pods can mount the model by a claim. The condition is
	// absent while no Pod names the claim.
	ConditionMountable = "Mountable"
	// ConditionDeletionBlocked is true while the object is being deleted and the model is
	// still in use on a node.
	ConditionDeletionBlocked = "DeletionBlocked"
)

// Reasons of the conditions of a ClusterModelCache, besides ReasonAllReady,
// ReasonNotReady and ReasonNoNodes. The reason of a failure is the launcher's code for it,
// such as NotFound.
const (
	ReasonResolved         = "Resolved"
	ReasonNotAsked         = "NotAsked" // no launcher has asked the source yet
	ReasonAsked            = "Asked"    // a launcher has asked or is asking the source, and no version is known yet
	ReasonNodeGroupMissing = "NodeGroupMissing"
	ReasonDownloading      = "Downloading"
	ReasonRemoving         = "Removing"
	ReasonIdle             = "Idle"
	ReasonNoneFailed       = "NoneFailed"
	ReasonFailed           = "Failed" // the failure has no code
	ReasonInUse            = "InUse"
	ReasonSecretRead       = "SecretRead"
	ReasonSecretMissing    = "SecretMissing" // or the ServiceAccount lists no Secret that has what the source takes
	ReasonSecretInvalid    = "SecretInvalid" // it has an unknown key, or lacks a key; or two Secrets contradict each other
	ReasonAccountMissing   = "ServiceAccountMissing"
	ReasonAccessDenied     = "AccessDenied"
	ReasonClaimed          = "Claimed"         // Pods mount the model by its claim
	ReasonPrivate          = "Private"         // its credentials are not shared
	ReasonSeveralVersions  = "SeveralVersions" // its nodes have different versions
	ReasonSeveralFolders   = "SeveralFolders"  // its node groups have different folders, and a volume has only one
)

// More reasons of the conditions of a ModelCache.
const (
	ReasonWhole        = "Whole"              // the claim has the model
	ReasonAccountUsed  = "ServiceAccountUsed" // its Job runs as the ServiceAccount and gets no Secret
	ReasonPreparing    = "Preparing"          // the controller is creating the claim or the Job
	ReasonClaimMissing = "ClaimMissing"       // the claim does not exist, or is being deleted
	ReasonClaimPending = "ClaimPending"       // the claim has no volume yet
	ReasonClaimRefused = "ClaimRefused"       // the API server refused to create or change the claim
	ReasonJobRefused   = "JobRefused"         // the API server refused the Job, for instance because a variable has an invalid name
)

// ConditionScalingLimited is true on a ModelServing while a role has another number of replicas than
// was asked for. The condition is absent if there is no ratioConstraint and no RoleScaler.
const ConditionScalingLimited = "ScalingLimited"

// ConditionPodGroups is true on a ModelServing if each group has a PodGroup, of Volcano or of Kubernetes.
// The condition is absent unless one of them gives the Pods of groups nodes together.
const ConditionPodGroups = "PodGroups"

// ConditionInferencePool is true on a Model while it has its InferencePool. The condition is absent unless the
// Model asks for one.
const ConditionInferencePool = "InferencePool"

// Reasons of ConditionInferencePool, besides ReasonNameTaken and ReasonRefused.
const (
	ReasonPoolKept        = "Kept"
	ReasonPoolPending     = "Pending"          // it is being created or removed
	ReasonNoInferencePool = "NoInferencePools" // the cluster has no CRD of InferencePools, version v1
)

// Reasons of ConditionScalingLimited, besides ReasonNameTaken, ReasonWaitsForDeletion and
// ReasonRefused: of a RoleScaler.
const (
	ReasonRatioConstraint = "RatioConstraint" // there are too few replicas of the other role
	ReasonAsAsked         = "AsAsked"
)

// Reasons of the conditions and groups of a ModelServing, besides ReasonAllReady, ReasonNotReady,
// ReasonNoneNeeded, ReasonNameTaken and ReasonMalformedTemplate.
const (
	ReasonStarting = "Starting" // Pods are being created, or are not ready
	ReasonScaling  = "Scaling"  // Pods that are not wanted any more are being deleted
	ReasonUpdating = "Updating" // Pods of an older template are being replaced
	ReasonChanging = "Changing" // the models of a group are being changed in place
	// ReasonChangeFailed: a change in place was undone; the group has the old models.
	ReasonChangeFailed = "ChangeFailed"
	// ReasonRevisionLost: the group runs, and the ControllerRevision of its template is gone or cannot be read.
	ReasonRevisionLost = "RevisionLost"
	// ReasonEditedByOthers, of Events: somebody else has changed an object that the controller made.
	ReasonEditedByOthers = "EditedByOthers"
	// ReasonChangeEnded, of Events: a Pod is created again, since its change in place came to no end.
	ReasonChangeEnded = "ChangeEnded"
	// ReasonNotInPlace: Pods of an older template are being replaced, since the change cannot be made in
	// them.
	ReasonNotInPlace = "NotInPlace"
	ReasonRefused    = "Refused" // the API server refused to create an object
	// ReasonWaitsForRanks: the ranks of a server over several launchers start together, and not all
	// of them serve yet.
	ReasonWaitsForRanks = "WaitsForRanks"
	// ReasonRestarting: Pods of the group, or their servers, are being restarted.
	ReasonRestarting = "Restarting"
	// ReasonTooManyRestarts: the group was restarted again and again, and is tried hourly.
	ReasonTooManyRestarts = "TooManyRestarts"
	// ReasonNotRestarted: a Pod has ended, or its server, and the recovery policy is None.
	ReasonNotRestarted = "NotRestarted"
	// ReasonWaitsForGang: the Pods of the group get nodes together, and there is no room for all.
	ReasonWaitsForGang = "WaitsForGang"
	// ReasonWaitsForDeletion: an object of an earlier ModelServing of the same name is not gone yet.
	ReasonWaitsForDeletion = "WaitsForDeletion"
	// ReasonNoVolcano: the cluster has no PodGroups of Volcano.
	ReasonNoVolcano = "NoVolcano"
	// ReasonNoPodGroups: gangScheduler is Kubernetes, and the cluster has no PodGroups of Kubernetes.
	ReasonNoPodGroups = "NoPodGroups"
	// ReasonPodGroupKept: a group whose Pods have nodes keeps the minimum that it got them with.
	ReasonPodGroupKept = "PodGroupKept"
	// ReasonPodGroupsCreated: each group has its PodGroup.
	ReasonPodGroupsCreated = "PodGroupsCreated"
)

// Types of conditions of a Model, besides ConditionAccepted, ConditionAvailable, ConditionProgressing and
// ConditionScalingLimited.
const (
	// ConditionStandbyServing is true while nothing but a standby answers.
	ConditionStandbyServing = "StandbyServing"
	// ConditionNameConflict is true while an alias of the Model, or the name of an adapter, stands for another Model.
	ConditionNameConflict = "NameConflict"
	// ConditionAllSpecsFailing is true while every entry that is no standby has failed.
	ConditionAllSpecsFailing = "AllSpecsFailing"
)

// Reasons of the conditions of a Model, besides ReasonAccepted, ReasonInvalid, ReasonStarting, ReasonScaling,
// ReasonIdle, ReasonAsAsked and ReasonNoneFailed.
const (
	ReasonServing         = "Serving"
	ReasonAtZero          = "AtZero"        // nothing runs, and nothing is asked for
	ReasonNoEntryCanRun   = "NoEntryCanRun" // before somebody edits something: front doors hold no request
	ReasonAllSpecsFailing = "AllSpecsFailing"
	ReasonMaximum         = "Maximum" // a maximum keeps the Model from what demand needs
)
