package decide

// serving: the instance is awake, and clients are to be led to it.
var serving = Table{
	Name:     "serving",
	Sentence: "The instance of the record is awake",
	Of:       always,
	Rows: []Row{
		{"told to rest", "the launcher was told to put the instance to sleep, or to delete it, while nobody was bound to it or wanted it, and has not answered, or its stream has not said so",
			(*Observation).toldToRest, Nothing, say("the launcher was told to put instance %s to sleep, or to delete it, before it was wanted again", instanceID)},
		{"awake before it runs, gate shut", "bound ahead; the requester program does not run yet; the requester lists our readiness gate, and that is not true",
			(*Observation).gateShutAhead, OpenGate, awakeForIt},
		{"awake before it runs", "bound ahead; the requester program does not run yet",
			(*Observation).isAhead, Nothing, say("instance %s is awake, and its container %s does not run yet", instanceID, container)},
		{"being unbound", "connections of an earlier binding are ending",
			(*Observation).earlierBindingEnds, Nothing, say("connections of an earlier binding are ending")},
		{"carries for another", "the requester program carries traffic for something else than the record",
			(*Observation).forwardsForAnother, Unbind, unbindOrReplace},
		{"carries nothing", "the requester program carries no traffic",
			(*Observation).forwardsNoTraffic, Bind, say("instance %s is awake", instanceID)},
		{"not ready", "the requester is not ready",
			(*Observation).isUnready, BecomeReady, say("instance %s is awake", instanceID)},
		{"gate shut", "the requester lists our readiness gate, and that is not true",
			(*Observation).gateShut, OpenGate, awakeForIt},
		{"not published", "its labels are not those of its input; or its status does not say that it serves, unless its gate does and there is nothing else to say",
			(*Observation).isUnpublished, Publish, say("instance %s serves it", instanceID)},
	},
}

// awakeForIt says which instance the requester has.
var awakeForIt = say("instance %s of launcher %s serves it%s", instanceID, launcherName, modelFrom)

// gateShutAhead reports whether the readiness gate is to be opened before the requester program
// runs. The kubelet says that the Pod is ready when it says that its containers run; a gate that
// opens later it sees only when it looks at the Pod again, up to a second later.
func (o *Observation) gateShutAhead() bool { return o.Ahead && o.gateShut() }

// isAhead reports whether the requester program does not run yet, and the kubelet's word counts.
func (o *Observation) isAhead() bool { return o.Ahead }

// toldToRest reports whether the instance is on its way to rest.
func (o *Observation) toldToRest() bool { return o.Calls.Sleep || o.Calls.Delete }

// earlierBindingEnds reports whether the program is ending connections of an earlier binding.
func (o *Observation) earlierBindingEnds() bool { return o.Calls.Unbind }

// forwardsForAnother reports whether the program carries traffic for another binding.
func (o *Observation) forwardsForAnother() bool {
	return o.ForwardsTraffic() && o.SPI.Proxy.ProxyConfig != o.Proxy()
}

// forwardsNoTraffic reports whether the program carries no traffic.
func (o *Observation) forwardsNoTraffic() bool { return !o.ForwardsTraffic() }

// isUnready reports whether the program is not ready.
func (o *Observation) isUnready() bool { return !o.IsReady() }

// gateShut reports whether the readiness gate is to be opened.
func (o *Observation) gateShut() bool { return o.Requester.Gate && !o.Requester.GateOpen }

// isUnpublished reports whether labels and status are not those of a requester that serves.
func (o *Observation) isUnpublished() bool { return !o.Requester.Published }

// enoughUnbinds is how often a requester program may refuse to unbind before its requester is
// replaced.
const enoughUnbinds = 5

// unbindOrReplace ends an earlier binding of the requester program, which cannot be bound again
// before. The controller replaces a requester whose program never unbinds and that nobody uses.
func unbindOrReplace(o *Observation) Step {
	if t := o.Troubles[Unbind]; t.Count >= enoughUnbinds && o.isUnready() && !o.isPublished() {
		step := warn(RequesterRefuses, "its program keeps an earlier binding, and does not unbind: %s", func(*Observation) string { return t.Why })(o)
		step.Do = DeleteRequester
		return step
	}
	return Step{Why: "the requester program carries traffic for an earlier binding"}
}
