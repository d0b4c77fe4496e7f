package decide

import "time"

// Slices is what the EndpointSlices of Services that ask for them say of a requester.
type Slices struct {
	Lead bool      // one of them leads new connections to it
	Left time.Time // since when none does; zero: none ever did
}

// Serves reports whether connections to a requester reach a model that is awake. known is false
// where that cannot be told: what was known last still counts. A requester that is being deleted
// serves on until its program is told to end.
func (o *Observation) Serves() (serves, known bool) {
	b, r := o.Bound(), &o.Requester
	switch {
	case b == nil && o.Unread != "": // that record may be its own
		return false, false
	case b == nil, !r.Running, r.Finished, o.Node.Gone, o.isEnding(), b.LauncherUnknown():
		return false, true
	case b.recordChanged():
		return false, true
	case !b.instanceKnown():
		return false, false
	case !b.instanceAwake(), o.Calls.Sleep, o.Calls.Delete:
		return false, true
	case o.SPI == nil:
		return false, false
	}
	return b.IsReady() && b.awake().ForwardsToIt(), true
}

// EndpointsDelay is how long proxies may still lead connections to a requester that no slice
// leads to any more: as long as the default of the requester program's --shutdown-delay.
const EndpointsDelay = 5 * time.Second
