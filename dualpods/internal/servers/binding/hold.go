package binding

import (
	"context"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// While the model of a requester is on its way, its program holds connections that come too
// early. Clients see that a requester is there by its readiness gate alone: only a Pod that
// lists the gate holds.

// holding is the binding that the requester program holds connections for; empty: none.
func (o *Observation) holding() string {
	if o.SPI == nil {
		return ""
	}
	return o.SPI.Proxy.Holding
}

// shouldHold reports whether the requester program is to be told to hold connections for the
// record. A call that was made in vain a moment ago is not made again: a requester is served
// without it, too.
func (o *Observation) shouldHold() bool {
	return o.Requester.Gate && o.SPI != nil && o.SPI.Proxy.CanHold && !o.carries() && !o.Calls.Unbind &&
		o.Attempt.Asked && !o.Attempt.Over && o.holding() != o.Record.SwapKey() && !o.inVain(Hold)
}

// shouldEndHold reports whether the requester program is to be told to hold no connections.
// Where that was in vain, everything else goes on: what is held reaches nobody else, and is
// reset after a while.
func (o *Observation) shouldEndHold() bool { return o.holdsForNobody() && !o.inVain(EndHold) }

// againToEndHold adds to a step when the program is told again to end its hold.
func (o *Observation) againToEndHold(step Step) Step {
	if o.holdsForNobody() && o.inVain(EndHold) {
		step.After = dualpods.Sooner(step.After, o.Troubles[EndHold].Until.Sub(o.Now))
	}
	return step
}

// holdsForNobody reports whether a requester that stays holds connections for a binding that
// does not come. A program that is told to end holds nothing from then on.
func (o *Observation) holdsForNobody() bool {
	return o.holding() != "" && !o.leaving() && (o.Record == nil || o.letGo() || o.holding() != o.Record.SwapKey())
}

// hold tells the requester program to hold connections for the record, or to hold none. A call
// that fails counts as one in vain; the pass goes on.
func (c *Controller) hold(ctx context.Context, n *nodeWork, o Observation, seat *SPI, do Action) {
	var err error
	if do == Hold {
		var proxy requesterapi.Proxy
		proxy, err = c.opts.Requesters.Hold(ctx, o.Requester.AdminAddress, requesterapi.Hold{Binding: o.Record.SwapKey(), ServingPort: uint16(o.Record.ServingPort)})
		if err == nil {
			seat.Proxy = proxy
		}
	} else if _, err = c.opts.Requesters.Unbind(ctx, o.Requester.AdminAddress, o.holding(), 0); err == nil {
		seat.Proxy.Holding = ""
	}
	c.called(n, troubleKey(do, o.Requester.UID), seat.Proxy.Instance, err)
}
