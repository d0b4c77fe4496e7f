package decide

// unbinding: the requester goes on by a new record, once what serves it by this one is at rest.
// The rows are in the order in which the record ends.
var unbinding = TableOf[Ending]{
	Name:     "unbinding",
	Sentence: "The record is unwanted, and the requester stays",
	Sees:     func(s *seen) *Ending { return s.unbinding },
	Rows: []RowOf[Ending]{
		on((*Ending).bound, notHeld), on((*Ending).bound, notAwakeReady), on((*Ending).bound, notAwakeStaysReady),
		on((*Ending).bound, RowOf[Bound]{"unwanted, shown", "labels, status or gate say that it serves",
			(*Bound).isPublished, Retract, say("instance %s is not what it is to have any more", (*Bound).instanceID)}),
		connectionsEnd, inItsEndpoints, stillCarries, holdsForNobody((*Ending).shouldEndHold), launcherEnded, silentForLong, silent,
	},
	Next: resting.Name,
}
