package binding

import (
	"context"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// While the model of a requester is on its way, its program holds connections that come too
// early. Clients see that a requester is there by its readiness gate alone: only a Pod that
// lists the gate holds.

// hold tells the requester program to hold connections for the record, or to hold none. A call
// that fails counts as one in vain; the pass goes on.
func (c *Controller) hold(ctx context.Context, n *nodeWork, o decide.Observation, seat *decide.SPI, do decide.Action) {
	var err error
	if do == decide.Hold {
		var proxy requesterapi.Proxy
		proxy, err = c.opts.Requesters.Hold(ctx, o.Requester.AdminAddress, requesterapi.Hold{Binding: o.Record.SwapKey(), ServingPort: uint16(o.Record.ServingPort)})
		if err == nil {
			seat.Proxy = proxy
		}
	} else if _, err = c.opts.Requesters.Unbind(ctx, o.Requester.AdminAddress, o.Holding(), 0); err == nil {
		seat.Proxy.Holding = ""
	}
	c.called(n, troubleKey(do, o.Requester.UID), seat.Proxy.Instance, err)
}
