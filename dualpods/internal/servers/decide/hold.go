package decide

import "hotseat.dev/hotseat/dualpods"

// Holding returns the binding that the requester program holds connections for; empty: none.
func (o *Observation) Holding() string {
	if o.SPI == nil {
		return ""
	}
	return o.SPI.Proxy.Holding
}

// shouldHold reports whether the requester program is to be told to hold connections for the
// record. A call that was made in vain a moment ago is not made again: a requester is served
// without it, too.
func (o *Observation) shouldHold() bool {
	return o.Requester.Gate && o.SPI != nil && o.SPI.Proxy.CanHold && !o.ForwardsTraffic() && !o.Calls.Unbind &&
		o.Attempt.Asked && !o.Attempt.Over && o.Holding() != o.Record.SwapKey() && !o.inVain(Hold)
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
	return o.Holding() != "" && !o.IsLeaving() && (o.Record == nil || o.RecordUnwanted() || o.Holding() != o.Record.SwapKey())
}
