package decide

// serving: the instance is awake, and clients are to be led to it. The rows are in the order of the
// steps to that.
var serving = TableOf[Awake]{
	Name:     "serving",
	Sentence: "The instance of the record is awake",
	Sees:     func(s *seen) *Awake { return s.serving },
	Rows: []RowOf[Awake]{
		{"told to rest", "the launcher was told to put the instance to sleep, or to delete it, while nobody was bound to it or wanted it, and has not answered, or its stream has not said so",
			(*Awake).toldToRest, Nothing, say("the launcher was told to put instance %s to sleep, or to delete it, before it was wanted again", (*Awake).instanceID)},
		{"awake before it runs, gate shut", "bound ahead; the requester program does not run yet; the requester lists our readiness gate, and that is not true",
			(*Awake).gateShutAhead, OpenGate, awakeForIt},
		{"awake before it runs", "bound ahead; the requester program does not run yet",
			(*Awake).isAhead, Nothing, say("instance %s is awake, and its container %s does not run yet", (*Awake).instanceID, (*Awake).container)},
		{"being unbound", "connections of an earlier binding are ending",
			(*Awake).earlierBindingEnds, Nothing, say[Awake]("connections of an earlier binding are ending")},
		{"carries for another", "the requester program carries traffic for something else than the record",
			(*Awake).forwardsForAnother, Unbind, (*Awake).unbindOrReplace},
		{"carries nothing", "the requester program carries no traffic",
			(*Awake).forwardsNoTraffic, Bind, say("instance %s is awake", (*Awake).instanceID)},
		{"not ready", "the requester is not ready",
			(*Awake).isUnready, BecomeReady, say("instance %s is awake", (*Awake).instanceID)},
		{"gate shut", "the requester lists our readiness gate, and that is not true",
			(*Awake).gateShut, OpenGate, awakeForIt},
		{"not published", "its labels are not those of its input; or its status does not say that it serves, unless its gate does and there is nothing else to say",
			(*Awake).isUnpublished, Publish, say("instance %s serves it", (*Awake).instanceID)},
	},
}

// awakeForIt says which instance the requester has.
var awakeForIt = say("instance %s of launcher %s serves it%s", (*Awake).instanceID, (*Awake).launcherName, (*Awake).modelFrom)

// gateShutAhead reports whether the readiness gate is to be opened before the requester program
// runs. The kubelet says that the Pod is ready when it says that its containers run; a gate that
// opens later it sees only when it looks at the Pod again, up to a second later.
func (a *Awake) gateShutAhead() bool { return a.Ahead && a.gateShut() }

// isAhead reports whether the requester program does not run yet, and the kubelet's word counts.
func (a *Awake) isAhead() bool { return a.Ahead }

// toldToRest reports whether the instance is on its way to rest.
func (a *Awake) toldToRest() bool { return a.Calls.Sleep || a.Calls.Delete }

// earlierBindingEnds reports whether the program is ending connections of an earlier binding.
func (a *Awake) earlierBindingEnds() bool { return a.Calls.Unbind }

// forwardsForAnother reports whether the program carries traffic for another binding.
func (a *Awake) forwardsForAnother() bool { return a.ForwardsTraffic() && !a.ForwardsToIt() }

// forwardsNoTraffic reports whether the program carries no traffic.
func (a *Awake) forwardsNoTraffic() bool { return !a.ForwardsTraffic() }

// isUnready reports whether the program is not ready.
func (a *Awake) isUnready() bool { return !a.IsReady() }

// gateShut reports whether the readiness gate is to be opened.
func (a *Awake) gateShut() bool { return a.Requester.Gate && !a.Requester.GateOpen }

// isUnpublished reports whether labels and status are not those of a requester that serves.
func (a *Awake) isUnpublished() bool { return !a.Requester.Published }

// enoughUnbinds is how often a requester program may refuse to unbind before its requester is
// replaced.
const enoughUnbinds = 5

// unbindOrReplace ends an earlier binding of the requester program, which cannot be bound again
// before. The controller replaces a requester whose program never unbinds and that nobody uses.
func (a *Awake) unbindOrReplace() Step {
	if t := a.Troubles[Unbind]; t.Count >= enoughUnbinds && a.isUnready() && !a.isPublished() {
		return Step{Do: DeleteRequester, Why: "its program keeps an earlier binding, and does not unbind: " + t.Why, Reason: RequesterRefuses, Warn: true}
	}
	return Step{Why: "the requester program carries traffic for an earlier binding"}
}
