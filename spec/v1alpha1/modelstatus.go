package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ModelStatus is the observed state.
type ModelStatus struct {
	// Generation of the object that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Accepted: all entries can be understood. Available: a replica answers requests, or none is needed.
	// Progressing: replicas are being started or taken away. StandbyServing: only a standby answers.
	// ScalingLimited: demand needs more replicas than may be. AllSpecsFailing: every entry has failed.
	// NameConflict: requests for one of its aliases or adapters go to another Model.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Replicas that there are to be, without standbys.
	// +optional
	Replicas int32 `json:"replicas"`
	// Replicas that answer requests, with standbys.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Selector of the Model's Pods, as text.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Entries that answer requests, with their numbers of replicas, for people.
	// +optional
	Serving string `json:"serving,omitempty"`
	// Entries that have failed and are tried again later, for people.
	// +optional
	BackingOff string `json:"backingOff,omitempty"`
	// Nodes on which the model sleeps, for people; a long list is shortened.
	// +optional
	SleepsOn string `json:"sleepsOn,omitempty"`

	// The entries, in the order of specs.
	// +optional
	// +listType=map
	// +listMapKey=name
	Specs []ModelEntryStatus `json:"specs,omitempty"`
}

// ModelEntryStatus is the observed state of an entry.
type ModelEntryStatus struct {
	// Name of the entry.
	Name string `json:"name"`
	// Hash of the entry with what it inherits.
	// +optional
	Hash string `json:"hash,omitempty"`
	// Launcher: the launchers of nodes run it. Seats: they run it in seats of a SeatPool. Pods: its Pods run the
	// engine themselves, and never sleep.
	// +optional
	RunsIn ModelRunsIn `json:"runsIn,omitempty"`
	// Mistake of the entry, or what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// Its replicas.
	// +optional
	Replicas ModelEntryReplicas `json:"replicas,omitempty,omitzero"`
	// Why it failed last; absent once a replica was ready after it.
	// +optional
	LastFailure *ModelFailure `json:"lastFailure,omitempty"`
	// How often it has failed since a replica was ready.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// When it is tried again.
	// +optional
	BackoffUntil *metav1.MicroTime `json:"backoffUntil,omitempty"`
	// Nodes on which the model sleeps as this entry runs it, for people; a long list is shortened.
	// +optional
	SleepsOn string `json:"sleepsOn,omitempty"`
}

// ModelRunsIn is what runs an entry.
type ModelRunsIn string

// The values of ModelRunsIn.
const (
	RunsInLauncher ModelRunsIn = "Launcher"
	RunsInSeats    ModelRunsIn = "Seats"
	RunsInPods     ModelRunsIn = "Pods"
)

// HasLauncher reports whether launchers run the engine.
func (in ModelRunsIn) HasLauncher() bool { return in == RunsInLauncher || in == RunsInSeats }

// ModelEntryReplicas are the numbers of an entry's replicas.
type ModelEntryReplicas struct {
	// Replicas that the entry should have.
	Desired int32 `json:"desired"`
	// Replicas that are not ready yet.
	Waiting int32 `json:"waiting"`
	// Replicas that answer requests.
	Ready int32 `json:"ready"`
	// Replicas that are being taken away.
	Losing int32 `json:"losing"`
}

// ModelFailure is why an entry failed.
type ModelFailure struct {
	// Why it failed, in one word.
	Reason string `json:"reason"`
	// What happened, and what to do.
	Message string `json:"message"`
	// When it failed.
	Time metav1.MicroTime `json:"time"`
}
