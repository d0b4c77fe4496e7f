package decide

import "time"

// Mode is who says how many replicas a Model has.
type Mode string

// The modes.
const (
	Requests Mode = "Requests" // the demand
	External Mode = "External" // whoever writes /scale
	Off      Mode = "Off"      // whoever scales the Deployments
)

// Model is a Model as it was observed.
type Model struct {
	Now      time.Time
	Mode     Mode
	Replicas int // in mode External: how many there are to be, but for standbys
	// TotalMin and TotalMax bound the sum of the entries that are no standbys. TotalMax 0: no bound.
	TotalMin, TotalMax int
	Demand             Demand
	Entries            []Entry // in the order of preference
}

// Demand is the number of requests that are in flight or held, over all front doors.
type Demand struct {
	Now  int
	Held int     // of Now
	Mean float64 // of the last 10 s
	Peak int     // the highest of scaleDownDelaySeconds
	// Known means that Peak is the highest of the whole delay, and that every front door has told its
	// demand or has had 10 s to do so. Otherwise nothing goes for want of demand.
	Known bool
}

// Entry is one way to run the model, with its Deployment and Pods.
type Entry struct {
	Name     string
	Hash     string // of everything that its Pods are made from: another hash forgets all failures
	Min, Max int    // Max 0: no bound
	Target   int    // how much demand a replica carries; 0: the entry is a standby
	Group    string // its simultaneousScaleUpGroup; members stand together
	Invalid  string // why it cannot run before it is edited; empty: it can

	Unschedulable  time.Duration // how long a Pod may be unschedulable
	ScaleUpTimeout time.Duration // how long a Pod may take to be ready

	// Seated means that the Pods are seats of a SeatPool, which Models take turns on.
	Seated bool
	// NoSeat says since when the pool has had no seat for a replica. It is nil if the entry waits for none, or if no
	// other entry could take its place.
	NoSeat *Failure

	Replicas int // of the Deployment; 0 if there is none
	Asked    Asked
	Pods     []Pod
	// AsleepOnFree is how many replicas could wake on GPUs that nothing uses.
	AsleepOnFree int
	Refused      *Failure // why the Deployment creates no Pods, such as for want of quota; nil: it does
	Record       Record
}

// Asked is what the controller asked for last. It stands on the Deployment, and is written together
// with its number of replicas.
type Asked struct {
	Replicas int
	// Goal is what the serving replicas of all entries are to carry when the race of its group ends.
	// 0: the entry's replicas do not race.
	Goal int
}

// Pod is a Pod of an entry.
type Pod struct {
	Name  string
	Ready bool
	// Since is when the Pod became ready. If it is not ready, it is when it was created or, if that is
	// later, stopped being ready.
	Since    time.Time
	Serving  bool // it has the label hotseat.dev/serves
	Admitted bool // it has had that label
	Leaving  bool // it is being deleted
	// Unschedulable is what the scheduler says, and since when; nil: the Pod has a node, or the
	// scheduler has not looked yet.
	Unschedulable *Failure
	// Failure is why the Pod will not be ready: the refusal of a launcher, or an engine that failed.
	Failure  *Failure
	InFlight int  // requests
	Hot      bool // its model is awake or would wake, and need not be loaded
	Cost     int  // its pod-deletion-cost
}

// Failure is why replicas could not be had.
type Failure struct {
	Reason, Message string
	Time            time.Time
}

// Reasons of failures. A Pod that fails with ReasonInvalid has its entry wait for an edit.
const (
	ReasonUnschedulable = "Unschedulable"
	ReasonNotReady      = "NotReadyInTime"
	ReasonNotCreated    = "NotCreated" // the Deployment creates no Pods, and does not say why
	ReasonInvalid       = "InvalidInput"
)

// Record is what the status of the Model keeps of an entry.
type Record struct {
	Hash         string
	Failures     int // one after the other, without a ready replica in between
	LastFailure  *Failure
	BackoffUntil time.Time
}

// WaitsForEdit reports whether the entry has failed because its input is wrong.
func (r *Record) WaitsForEdit() bool {
	return r.Failures > 0 && r.LastFailure != nil && r.LastFailure.Reason == ReasonInvalid
}

// Decision is what is to be done about a Model.
type Decision struct {
	Entries []EntryDecision
	// AllFailing says why no entry but standbys can run; empty: some can, or have not been tried.
	AllFailing string
	// StandbyServing says which standby serves because nothing else does; empty: none.
	StandbyServing string
	// Limited says what keeps the model from what it should have; empty: nothing.
	Limited string
	Again   time.Duration // when to decide again though nothing changes; 0: never
}

// EntryDecision is what is to be done about an entry. These are to be written in this order: the
// Record, Serve, Unserve and Costs; then the Pods of Delete are deleted; then Asked and the number of
// replicas are written together.
type EntryDecision struct {
	Name   string
	Row    Row    // of the table in spec/model.md
	Why    string // of the row, with numbers
	Record Record
	Asked  Asked // with the number of replicas
	Write  bool  // Asked differs from what the Deployment has
	// Foreign says that somebody else has scaled the Deployment; empty: nobody has.
	Foreign string

	Serve   []string // Pods that get the label hotseat.dev/serves
	Unserve []string // Pods that lose it
	// Costs are pod-deletion-costs: a ReplicaSet deletes Pods that are not ready first, and then those
	// of the lowest cost.
	Costs map[string]int
	// Delete are Pods that go though their ReplicaSet would take others. They are deleted by name
	// before the number goes down, so that the ReplicaSet has none to choose.
	Delete []string

	Ready, Waiting, Losing int // replicas that stay, or are waited for, or go
}
