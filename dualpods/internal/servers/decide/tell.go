package decide

import (
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// Reason is one word for why a requester is told something: that of the Event,
// and in its status.
type Reason string

// The reasons. An Event is a Warning if somebody has to do something about it.
const (
	InvalidInput     Reason = "InvalidInput"               // of the requester or its InferenceServerConfig, by the controller or by the launcher
	RequesterSilent  Reason = "RequesterSilent"            // the requester program does not answer
	GPUsUnknown      Reason = "GPUsUnknown"                // the requester program cannot tell its GPUs
	GPUsDoNotMatch   Reason = "GPUsDoNotMatch"             // it tells another number than the Pod asks for
	GPUClaimedTwice  Reason = "GPUClaimedTwice"            // by this requester and another
	GPUsNotItsOwn    Reason = "GPUsNotItsOwn"              // the kubelet gave it others
	KubeletSilent    Reason = "KubeletSilent"              // which GPUs it gave cannot be told
	GPUNotSeen       Reason = "GPUNotSeen"                 // by the launcher
	LauncherMissing  Reason = "LauncherMissing"            // and nobody makes one
	LauncherStarting Reason = "LauncherStarting"           // or about to be made
	LauncherGoing    Reason = "LauncherGoing"              // being deleted
	LauncherSilent   Reason = "LauncherSilent"             // it runs and does not answer
	RequesterRefuses Reason = "RequesterRefuses"           // a call to the requester program fails again and again, or changes nothing
	LauncherRefuses  Reason = "LauncherRefuses"            // so with a call to the launcher
	InstanceBusy     Reason = "InstanceBusy"               // bound to a requester that leaves
	GPUBusy          Reason = "GPUBusy"                    // by an instance of another launcher that is about to sleep
	WaitsForRanks    Reason = v1alpha1.ReasonWaitsForRanks // of its server; all are launched or none
	NoModel          Reason = "NoModel"                    // of a seat that was given none
	ModelMissing     Reason = "ModelMissing"               // from the launcher; a ClusterModelCache has it waited for
	AttemptFailed    Reason = "AttemptFailed"              // the swap came to nothing; there is another one later
	NotServing       Reason = "NotServing"                 // not any more
	NotAwake         Reason = "NotAwake"                   // of the gate: its instance was awake, and is not any more before the requester program runs
	RecordDamaged    Reason = "RecordDamaged"              // that it is bound by, perhaps; also of the launcher Pod that it is on
	Outdated         Reason = "Outdated"                   // what it asks for has changed since it was bound

	// RequesterNotRunning: the kubelet cannot start the requester program, as where there is no such image.
	RequesterNotRunning Reason = "RequesterNotRunning"

	// Of requesters that are deleted.
	NodeUnschedulable Reason = "NodeUnschedulable"
	LauncherGone      Reason = "LauncherGone"
	ServerGone        Reason = "ServerGone"
)

// IsNews reports whether a step is worth an Event after what the status says. A Warning always is.
// Other steps are told once for each reason.
func IsNews(before podmeta.Status, step Step) bool {
	return step.Warn || before.Reason != string(step.Reason)
}

// MaxNote is how many bytes of an Event's note, and of a reason in an annotation, are used. The
// API server takes 1,024
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/).
const MaxNote = 1000

// ToldStatus returns the status of a requester that is told something, after the one that was
// there. The status of a requester that is served goes on to say so: without a gate, a later pass,
// perhaps of another process, knows by it that the requester served when its instance died.
func ToldStatus(o Observation, old podmeta.Status, step Step) podmeta.Status {
	s := podmeta.Status{State: StateWaiting, Reason: string(step.Reason), Message: step.Why}
	switch {
	case o.IsLeaving():
	case old.State == StateServing:
		s.State, s.Launcher, s.Instance, s.Generation = old.State, old.Launcher, old.Instance, old.Generation
	case o.Requester.GateOpen && !o.Ahead:
		s.State = StateServing
	}
	return s
}
