package decide

import (
	"time"

	"hotseat.dev/hotseat/spec/podmeta"
)

// Action is what a step does: one write, or none.
type Action string

// The actions.
const (
	Nothing Action = "nothing" // an event begins the next pass
	Retry   Action = "retry"   // look again after Step.After

	// Writes to the API server.
	Tell            Action = "tell"             // requester: status and, where it is new, an Event
	AddFinalizer    Action = "add finalizer"    // requester
	RemoveFinalizer Action = "remove finalizer" // requester
	DeleteRequester Action = "delete requester"
	CreateLauncher  Action = "create launcher"
	AddRecord       Action = "add record"    // launcher Pod, with its finalizer
	NextAttempt     Action = "next attempt"  // launcher Pod: the record with the next attempt
	NoteFailure     Action = "note failure"  // launcher Pod: that the instance ended while it served
	KeepEnded       Action = "keep ended"    // launcher Pod: the record says how its instance ended
	ChangeRecord    Action = "change record" // launcher Pod: the record, with another instance if it has one
	RemoveRecord    Action = "remove record" // launcher Pod, its finalizer with the last one
	Publish         Action = "publish"       // requester: labels that routers look for, and status
	Retract         Action = "retract"       // requester: without those labels, gate false
	OpenGate        Action = "open gate"     // requester: the readiness gate

	// Calls to the launcher; its watch stream brings the outcome.
	Swap           Action = "swap"
	CallOff        Action = "call off" // the swap of the record's attempt, if it waits for its turn still
	Sleep          Action = "sleep"
	DeleteInstance Action = "delete instance"
	Evict          Action = "evict" // sleepers of other launchers: delete them

	// Calls to the requester program.
	Bind          Action = "bind"
	Unbind        Action = "unbind"
	BecomeReady   Action = "become ready"
	BecomeUnready Action = "become unready"
	Hold          Action = "hold connections" // for the record
	EndHold       Action = "end hold"
)

// Step is what Decide answers.
type Step struct {
	Rule   string // its row in spec/binding.md
	Do     Action
	Why    string          // for people: in the status, Events, the log
	Reason Reason          // of the Event and in the status, with Tell and DeleteRequester
	Warn   bool            // somebody has to do something about it
	After  time.Duration   // when to look again, where nothing tells; 0: something does
	Record podmeta.Binding // with AddRecord, NextAttempt, KeepEnded and ChangeRecord: what is to be written
	OfNext bool            // with Swap, CallOff and DeleteInstance: it is about the record's change
	// Failures are what is to be noted, with NoteFailure.
	Failures podmeta.Failures
	// Victims are who is to be evicted, with Evict.
	Victims []Neighbour
}
