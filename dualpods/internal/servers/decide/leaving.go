package decide

// leaving: its server sleeps or is gone before its record goes, and the record goes before the
// finalizer. The rows are in the order in which a requester ends.
var leaving = TableOf[Ending]{
	Name:     "leaving",
	Sentence: "The requester leaves",
	Sees:     func(s *seen) *Ending { return s.leaving },
	Rows: []RowOf[Ending]{
		{"ended, shown", "it is not being deleted; labels, status or gate say that it serves",
			(*Ending).isShownAtItsEnd, Retract, say("%s", (*Ending).itsEnd)},
		{"leaving, never bound", "not bound; our finalizer is not on it",
			(*Ending).holdsNothing, Nothing, say[Ending]("nothing is held for it")},
		connectionsEnd, stillServing, inItsEndpoints, stillCarries,
		{"leaving, released", "not bound; its program does not run, answers, or cannot be what a record that cannot be read is of",
			(*Ending).isReleased, RemoveFinalizer, say[Ending]("its inference server sleeps or is gone")},
		launcherEnded, silentForLong, silent,
	},
	Next: resting.Name,
}

var stillServing = on((*Ending).bound, RowOf[Bound]{"leaving, still serving", "it is being deleted, and more than 2 s of its grace are left, or it is not, and the kubelet ends it; its program runs and forwards traffic for the record; it is ready, or was told to end and its shutdown delay is not over; the instance is awake, as far as is known",
	(*Bound).servesThroughDelay, Retry, again((*Bound).untilUnbound, say[Bound]("proxies may not have heard yet that it ends: it serves until they have had their time"))})

// holdsNothing reports whether nothing is held for the requester.
func (e *Ending) holdsNothing() bool { return e.Bound == nil && !e.Requester.Finalizer }

// isShownAtItsEnd reports whether a requester that ends without having been deleted is shown as
// one that serves. The deletion of others takes them out of their endpoints.
func (e *Ending) isShownAtItsEnd() bool {
	r := &e.Requester
	return (e.Node.Gone || r.Finished || e.isEnding()) && r.Exists && !r.Deleting && e.isPublished()
}

// itsEnd says what ends a requester that was not deleted.
func (e *Ending) itsEnd() string {
	switch {
	case e.Requester.Finished:
		return "its containers have ended"
	case e.Node.Gone:
		return "its node " + e.Node.Name + " is gone"
	case e.Requester.Ending:
		return "the kubelet ends it"
	}
	return "its program was told to end"
}

// isReleased reports whether nothing serves the requester any more.
func (e *Ending) isReleased() bool { return e.Bound == nil && !e.mayForwardTraffic() }
