package decide

// leaving: its server sleeps or is gone before its record goes, and the record goes before the
// finalizer.
var leaving = Table{
	Name:     "leaving",
	Sentence: "The requester leaves",
	Of:       (*Observation).IsLeaving,
	Rows: []Row{
		{"ended, shown", "it is not being deleted; labels, status or gate say that it serves",
			(*Observation).isShownAtItsEnd, Retract, say("%s", itsEnd)},
		{"leaving, never bound", "not bound; our finalizer is not on it",
			(*Observation).holdsNothing, Nothing, say("nothing is held for it")},
		connectionsEnd,
		{"leaving, still serving", "it is being deleted, and more than 2 s of its grace are left, or it is not, and the kubelet ends it; its program runs and forwards traffic for the record; it is ready, or was told to end and its shutdown delay is not over; the instance is awake, as far as is known",
			(*Observation).ServesThroughDelay, Retry, again((*Observation).untilUnbound, say("proxies may not have heard yet that it ends: it serves until they have had their time"))},
		inItsEndpoints,
		stillCarries,
		{"leaving, released", "not bound; its program does not run, answers, or cannot be what a record that cannot be read is of",
			(*Observation).isReleased, RemoveFinalizer, say("its inference server sleeps or is gone")},
		launcherEnded, silentForLong, silent,
	},
	Else: &resting,
}

// holdsNothing reports whether nothing is held for the requester.
func (o *Observation) holdsNothing() bool { return o.Record == nil && !o.Requester.Finalizer }

// isShownAtItsEnd reports whether a requester that ends without having been deleted is shown as
// one that serves. The deletion of others takes them out of their endpoints.
func (o *Observation) isShownAtItsEnd() bool {
	r := &o.Requester
	return (o.Node.Gone || r.Finished || o.isEnding()) && r.Exists && !r.Deleting && o.isPublished()
}

// itsEnd says what ends a requester that was not deleted.
func itsEnd(o *Observation) string {
	switch {
	case o.Requester.Finished:
		return "its containers have ended"
	case o.Node.Gone:
		return "its node " + o.Node.Name + " is gone"
	case o.Requester.Ending:
		return "the kubelet ends it"
	}
	return "its program was told to end"
}

// isReleased reports whether nothing serves the requester any more.
func (o *Observation) isReleased() bool { return o.Record == nil && !o.mayForwardTraffic() }
