package decide

import (
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Slices is what the EndpointSlices of Services that ask for them say of a requester.
type Slices struct {
	Lead bool      // one of them leads new connections to it
	Left time.Time // since when none does; zero: none ever did
}

// Serves reports whether connections to a requester reach a model that is awake. known is false
// where that cannot be told: what was known last still counts. A requester that is being deleted
// serves on until its program is told to end.
func (o *Observation) Serves() (serves, known bool) {
	r := &o.Requester
	switch {
	case o.Record == nil && o.Unread != "": // that record may be its own
		return false, false
	case o.Record == nil, !r.Running, r.Finished, o.Node.Gone, o.isEnding(), o.LauncherUnknown():
		return false, true
	case o.recordChanged():
		return false, true
	case !o.instanceKnown():
		return false, false
	case !o.InstanceIn(launcher.Awake), o.Calls.Sleep, o.Calls.Delete:
		return false, true
	case o.SPI == nil:
		return false, false
	}
	return o.IsReady() && o.SPI.Proxy.ProxyConfig == o.Proxy(), true
}

// EndpointsDelay is how long proxies may still lead connections to a requester that no slice
// leads to any more: as long as the default of the requester program's --shutdown-delay.
const EndpointsDelay = 5 * time.Second

// waitsForItsEndpoints reports whether a requester that is to be unbound waits for its
// endpoints: proxies may still lead new connections to it, and its model is awake.
func (o *Observation) waitsForItsEndpoints() bool {
	r := &o.Requester
	runs := r.Running && !r.Finished && !o.Node.Gone && (!r.Deleting || o.graceLeft() > 0)
	if !runs || o.untilOutOfEndpoints() <= 0 {
		return false
	}
	forwards := o.SPI != nil && o.SPI.Proxy.State == requesterapi.StateBound
	awake := !o.launcherContainerEnded() && (!o.instanceKnown() || o.InstanceIn(launcher.Awake)) // as far as is known
	return forwards && awake
}

// untilOutOfEndpoints returns how long proxies may still lead connections to a requester. For
// one that a slice leads to, that is at least so long.
func (o *Observation) untilOutOfEndpoints() time.Duration {
	if o.Slices.Lead {
		return EndpointsDelay
	}
	return o.Slices.Left.Add(EndpointsDelay).Sub(o.Now)
}

// untilEndpointsEnd returns when proxies have had their time, or when the grace of a deleted
// requester ends. A slice that is written begins a pass, too.
func (o *Observation) untilEndpointsEnd() time.Duration {
	after := o.untilOutOfEndpoints()
	if o.Requester.Deleting {
		after = min(after, o.graceLeft())
	}
	return after
}
