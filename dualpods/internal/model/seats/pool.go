package seats

import "time"

// Pool is a SeatPool as it was observed.
type Pool struct {
	Now      time.Time
	Replicas int // how many seats the pool should have
	// MinResidency is how long a model with requests keeps its seat at least. Drain bounds how long requests go on after
	// their seat was taken.
	MinResidency, Drain time.Duration
	// Known means that every front door has told its requests, or has had its time to do so. Unless Known is true, no
	// seat is taken from a Model.
	Known  bool
	Seats  []Seat
	Claims []Claim
}

// Seat is a Pod of the pool that is not being deleted.
type Seat struct {
	Name     string
	Usable   bool   // its Pod runs, and its launcher answers: it can be given a model
	Outdated bool   // it was made from an earlier template of the pool
	Claim    string // the entry that has it; empty: it has no model
	Edited   bool   // somebody else has edited the annotations that say which model it has
	Hash     string // of the entry, as the seat was given it

	Ready      bool      // the model answers
	ReadySince time.Time // zero: it is not ready
	Serving    bool      // front doors send it requests
	Goes       bool      // the controller of the Model chose it to go
	InFlight   int       // requests
	Leaves     time.Time // since when it takes no new requests; zero: it takes them

	Asleep   []string // entries whose models sleep behind it
	Sleepers int      // instances that sleep behind it, of any entry or none
}

// Claim is an entry of a Model that takes seats of the pool.
type Claim struct {
	Name      string // MODEL/ENTRY
	Hash      string // of what is to run
	Wants     int    // seats that it asks for
	Min       int    // of these, the seats that are not taken from it: its minReplicas
	Weight    int    // its targetRequests
	Firm      bool   // it wants its seats also without a request
	Requests  int    // for its Model, in flight or held
	LastUsed  time.Time
	WaitsFrom time.Time // since when it has had requests, and as few seats as now; zero: it does not wait
	LostAt    time.Time // when a seat of it began to drain for another one; zero: none did
}

// Action is what a step does with a seat.
type Action string

// The actions. Each is one write.
const (
	Assign  Action = "assign"  // the seat gets the model of the claim
	Release Action = "release" // the seat has no model any more, which sleeps behind it
	Drain   Action = "drain"   // the seat takes no new requests
	Stay    Action = "stay"    // it takes requests again
	Delete  Action = "delete"  // the Pod
)

// Step is what is to be done with a seat.
type Step struct {
	Do    Action
	Seat  string
	Claim string // with Assign
	Row   Row
	Why   string
}

// Decision is what is to be done about a pool.
type Decision struct {
	Steps   []Step
	Create  int      // seats
	Waiting []string // claims that wait for a seat, in their order
	Again   time.Duration
}

// Row is a row of the table in spec/seats.md.
type Row string

// The rows, in the order of the table.
const (
	RowNotWanted Row = "not wanted"
	RowEdited    Row = "model edited"
	RowAsleep    Row = "sleeps behind it"
	RowFree      Row = "free seat"
	RowIdle      Row = "idle model"
	RowBusy      Row = "busy model"
	RowKept      Row = "not needed after all"
	RowSurplus   Row = "one too many"
	RowTemplate  Row = "template edited"
	RowTooFew    Row = "too few"
)

// Rows are all rows in the order of the table.
var Rows = []Row{RowNotWanted, RowEdited, RowAsleep, RowFree, RowIdle, RowBusy, RowKept, RowSurplus, RowTemplate, RowTooFew}
