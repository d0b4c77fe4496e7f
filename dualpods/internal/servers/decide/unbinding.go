package decide

import "hotseat.dev/hotseat/launcher"

// unbinding: the requester goes on by a new record, once what serves it by this one is at rest.
var unbinding = Table{
	Name:     "unbinding",
	Sentence: "The record is unwanted, and the requester stays",
	Of:       (*Observation).RecordUnwanted,
	Rows: []Row{
		notHeld, notAwakeReady, notAwakeStaysReady,
		{"unwanted, shown", "labels, status or gate say that it serves",
			(*Observation).isPublished, Retract, say("instance %s is not what it is to have any more", instanceID)},
		connectionsEnd, inItsEndpoints, stillCarries, holdsForNobody, launcherEnded, silentForLong, silent,
	},
	Else: &resting,
}

// The rows that a requester has on its way to the end of its record, whether it leaves or stays.
var (
	connectionsEnd = Row{"unbinding, connections end", "connections of its clients are ending; its program runs, and its node is there",
		(*Observation).isBeingUnbound, Nothing, say("connections of its clients are ending")}
	inItsEndpoints = Row{"unbinding, in its endpoints", "its program runs and forwards traffic; the instance is awake, as far as is known; an EndpointSlice of the controller leads new connections to it, or did less than 5 s ago; it is not being deleted, or more than 2 s of its grace are left",
		(*Observation).waitsForItsEndpoints, Retry, again((*Observation).untilEndpointsEnd, say("proxies may still lead connections to it, by the endpoints of a Service: it serves until they have had their time"))}
	stillCarries = Row{"unbinding, carries", "its program carries traffic; its instance is not starting; unless the requester stays, its launcher is gone, and its program has refused five times to unbind",
		(*Observation).carriesToTheEnd, Unbind, say("its clients' connections must end before its model sleeps, and the requester program with its binding")}
	launcherEnded = Row{"unbinding, launcher gone", "bound; the launcher's container has ended, or the node is gone",
		(*Observation).recordOfNothing, RemoveRecord, say("what the launcher held is gone with it")}
	silentForLong = Row{"unbinding, requester silent for long", "its program runs and has not answered for 10 s; there is an instance of the record that is not starting, or a record that cannot be read may be its own",
		(*Observation).mayForwardTrafficForLong, Tell, again((*Observation).untilAsked, warn(RequesterSilent, "its model cannot be put to sleep: the requester program, which may carry traffic to it, does not answer at %s", adminAddress))}
	silent = Row{"unbinding, requester silent", "the same; its program has not answered for less than that",
		(*Observation).mayForwardTraffic, Retry, again((*Observation).untilAsked, say("the requester program does not say whether it carries traffic: its model sleeps once it does, or has ended"))}
)

// isBeingUnbound reports whether the program is ending the connections of its clients.
func (o *Observation) isBeingUnbound() bool {
	return o.Calls.Unbind && o.Requester.Running && !o.Node.Gone
}

// carriesToTheEnd reports whether the program is to be unbound. If the instance is starting,
// the one that the program carries traffic to died before.
func (o *Observation) carriesToTheEnd() bool {
	starting := o.instanceKnown() && o.InstanceIn(launcher.Starting)
	return o.ForwardsTraffic() && !starting && !o.neverUnbinds()
}

// neverUnbinds reports whether the requester stays, and its program, which has refused to unbind
// often enough, carries traffic to a launcher that is gone.
func (o *Observation) neverUnbinds() bool {
	return !o.IsLeaving() && o.launcherGone() && o.Troubles[Unbind].Count >= enoughUnbinds
}

// recordOfNothing reports whether what the record is of is gone with its launcher.
func (o *Observation) recordOfNothing() bool { return o.Record != nil && o.launcherContainerEnded() }

// mayForwardTrafficForLong reports whether people are to be told of a program that does not say
// whether it carries traffic.
func (o *Observation) mayForwardTrafficForLong() bool {
	return o.mayForwardTraffic() && o.silentForLong()
}

// RecordUnwanted reports whether the instance of the record is to sleep: nobody wants it any
// more, or it is not what the requester would be bound to.
func (o *Observation) RecordUnwanted() bool {
	return o.Record != nil && (o.IsLeaving() || o.recordChanged())
}

// recordChanged reports whether the record is not what the requester would be bound to.
func (o *Observation) recordChanged() bool {
	return o.gpusChanged() || o.specChangedBeforeServing() || o.launcherRestartedBeforeServing()
}

// launcherRestartedBeforeServing reports whether the launcher's container has ended under a
// requester that is not served yet. It waits for the next launcher, as it did for this one.
func (o *Observation) launcherRestartedBeforeServing() bool {
	return o.launcherContainerEnded() && !o.launcherGone() && !o.Launcher.Deleting && !o.IsReady() && !o.isPublished()
}

// specChangedBeforeServing reports whether what was asked for has changed while the requester
// is not served. A requester that is served goes on with what it has, to the end of that.
func (o *Observation) specChangedBeforeServing() bool {
	serves := o.InstanceIn(launcher.Awake) && (o.Requester.Shown || o.ForwardsTraffic())
	died := o.instanceEndedOrGone() && (o.IsReady() || o.isPublished())
	return !serves && !died && o.instanceKnown() && len(o.Problems) == 0 && !o.specUnchanged()
}

// specUnchanged reports whether the record is of what is asked for now.
func (o *Observation) specUnchanged() bool {
	launcher := o.Form.LauncherConfig == "" || o.Launcher == nil || o.Form.LauncherConfig == o.Launcher.Config
	return launcher && o.Form.Hash() == o.Record.SpecHash && o.Form.Port == o.Record.ServingPort
}

// gpusChanged reports whether the record is not of the GPUs that the requester has.
func (o *Observation) gpusChanged() bool {
	if o.Record.Ahead && o.Kubelet != nil && len(o.Kubelet.GPUs) > 0 && !o.Kubelet.Early && !SameSet(o.Kubelet.GPUs, o.Record.GPUs) {
		return true
	}
	return o.SPI != nil && o.SPI.Wrong == "" && !SameSet(o.SPI.GPUs, o.Record.GPUs)
}
