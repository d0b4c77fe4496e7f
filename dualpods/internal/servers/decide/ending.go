package decide

import (
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Ending is what the tables leaving and unbinding read: a requester on its way to the end of its
// record.
type Ending struct {
	*Common
	Bound    *Bound    // nil: it leaves, and has no record
	Launched *Launched // nil: there is no launcher
	Unread   string    // what is wrong with a record that may be its own, and that it leaves with; empty: there is none
	Slices   Slices
}

// ending returns a requester that leaves, or whose record, which is b's, is unwanted.
func (o *Observation) ending(b *Bound) *Ending {
	e := &Ending{Common: &o.Common, Bound: b, Launched: o.launched(), Slices: o.Slices}
	if o.IsLeaving() {
		e.Unread = o.Unread
	}
	return e
}

// bound returns the requester with its record; nil: it is not bound.
func (e *Ending) bound() *Bound { return e.Bound }

// The rows that a requester has on its way to the end of its record, whether it leaves or stays.
var (
	connectionsEnd = RowOf[Ending]{"unbinding, connections end", "connections of its clients are ending; its program runs, and its node is there",
		(*Ending).isBeingUnbound, Nothing, say[Ending]("connections of its clients are ending")}
	inItsEndpoints = RowOf[Ending]{"unbinding, in its endpoints", "its program runs and forwards traffic; the instance is awake, as far as is known; an EndpointSlice of the controller leads new connections to it, or did less than 5 s ago; it is not being deleted, or more than 2 s of its grace are left",
		(*Ending).waitsForItsEndpoints, Retry, again((*Ending).untilEndpointsEnd, say[Ending]("proxies may still lead connections to it, by the endpoints of a Service: it serves until they have had their time"))}
	stillCarries = RowOf[Ending]{"unbinding, carries", "its program carries traffic; its instance is not starting; unless the requester stays, its launcher is gone, and its program has refused five times to unbind",
		(*Ending).carriesToTheEnd, Unbind, say[Ending]("its clients' connections must end before its model sleeps, and the requester program with its binding")}
	launcherEnded = on((*Ending).bound, RowOf[Bound]{"unbinding, launcher gone", "bound; the launcher's container has ended, or the node is gone",
		(*Bound).launcherContainerEnded, RemoveRecord, say[Bound]("what the launcher held is gone with it")})
	silentForLong = RowOf[Ending]{"unbinding, requester silent for long", "its program runs and has not answered for 10 s; there is an instance of the record that is not starting, or a record that cannot be read may be its own",
		(*Ending).mayForwardTrafficForLong, Tell, again((*Ending).untilAsked, warn(RequesterSilent, "its model cannot be put to sleep: the requester program, which may carry traffic to it, does not answer at %s", (*Ending).adminAddress))}
	silent = RowOf[Ending]{"unbinding, requester silent", "the same; its program has not answered for less than that",
		(*Ending).mayForwardTraffic, Retry, again((*Ending).untilAsked, say[Ending]("the requester program does not say whether it carries traffic: its model sleeps once it does, or has ended"))}
)

// isBeingUnbound reports whether the program is ending the connections of its clients.
func (e *Ending) isBeingUnbound() bool {
	return e.Calls.Unbind && e.Requester.Running && !e.Node.Gone
}

// waitsForItsEndpoints reports whether a requester that is to be unbound waits for its
// endpoints: proxies may still lead new connections to it, and its model is awake.
func (e *Ending) waitsForItsEndpoints() bool {
	r := &e.Requester
	runs := r.Running && !r.Finished && !e.Node.Gone && (!r.Deleting || e.graceLeft() > 0)
	if !runs || e.untilOutOfEndpoints() <= 0 {
		return false
	}
	forwards := e.SPI != nil && e.SPI.Proxy.State == requesterapi.StateBound
	return forwards && e.mayBeAwake()
}

// mayBeAwake reports whether the model is awake, as far as is known. While the node of a requester
// without a record has a launcher, that is not known.
func (e *Ending) mayBeAwake() bool {
	if e.Bound != nil {
		return e.Bound.mayBeAwake()
	}
	return e.Launched != nil && !e.Launched.launcherContainerEnded()
}

// untilOutOfEndpoints returns how long proxies may still lead connections to a requester. For
// one that a slice leads to, that is at least so long.
func (e *Ending) untilOutOfEndpoints() time.Duration {
	if e.Slices.Lead {
		return EndpointsDelay
	}
	return e.Slices.Left.Add(EndpointsDelay).Sub(e.Now)
}

// untilEndpointsEnd returns when proxies have had their time, or when the grace of a deleted
// requester ends. A slice that is written begins a pass, too.
func (e *Ending) untilEndpointsEnd() time.Duration {
	after := e.untilOutOfEndpoints()
	if e.Requester.Deleting {
		after = min(after, e.graceLeft())
	}
	return after
}

// carriesToTheEnd reports whether the program is to be unbound. If the instance is starting,
// the one that the program carries traffic to died before.
func (e *Ending) carriesToTheEnd() bool {
	starting := e.Bound != nil && e.Bound.instanceKnown() && e.Bound.instanceIn(launcher.Starting)
	return e.ForwardsTraffic() && !starting && !e.neverUnbinds()
}

// neverUnbinds reports whether the requester stays, and its program, which has refused to unbind
// often enough, carries traffic to a launcher that is gone.
func (e *Ending) neverUnbinds() bool {
	return !e.IsLeaving() && e.Bound != nil && e.Bound.launcherGone() && e.Troubles[Unbind].Count >= enoughUnbinds
}

// mayForwardTraffic reports whether the requester program does not say whether it carries
// traffic to an instance that is to sleep: that of its record, or one whose record cannot be
// read.
func (e *Ending) mayForwardTraffic() bool {
	if !e.Requester.Running || e.Requester.Finished || e.SPI != nil {
		return false
	}
	b := e.Bound
	return b != nil && b.Instance != nil && !b.instanceIn(launcher.Starting) || e.Unread != ""
}

// mayForwardTrafficForLong reports whether people are to be told of a program that does not say
// whether it carries traffic.
func (e *Ending) mayForwardTrafficForLong() bool {
	return e.mayForwardTraffic() && e.silentForLong()
}
