package decide

import "hotseat.dev/hotseat/spec/requesterapi"

// hasServed reports whether others were told to use a requester when its program ran, or may have:
// the gate may be open before. A program that runs, and carries nothing by a record that was
// written ahead, may be bound in the next moment.
func (b *Bound) hasServed() bool {
	if b.Requester.Shown {
		return true
	}
	early := b.Ahead || b.SPI != nil && b.isToBeCompared()
	return b.Requester.GateOpen && !early
}

// forwardsNothing reports whether the requester program is known not to carry traffic to the
// instance, and not to do so as soon as it is told to: a program that was started anew is bound
// again within milliseconds.
func (b *Bound) forwardsNothing() bool {
	switch {
	case !b.Requester.Running:
		return !b.Ahead || !b.Launcher.Connected
	case b.SPI == nil:
		return false
	case !b.ForwardsTraffic():
		return b.Troubles[Bind].Count > 0 || !b.Launcher.Connected || b.isToBeCompared() && (b.kubeletSilent() || b.SPI.Wrong != "")
	case b.SPI.Proxy.State != requesterapi.StateBound:
		return true
	default: // where the instance listens a launcher that does not answer cannot tell
		a := b.awake()
		return b.Launcher.Connected && a != nil && !a.ForwardsToIt()
	}
}
