package decide

// holdsForNobody returns the row of requesters that stay, and whose program holds connections for a
// binding that does not come.
func holdsForNobody[V any](shouldEndHold func(*V) bool) RowOf[V] {
	return RowOf[V]{"holds for nobody", "its program holds connections for a binding that does not come: it is not bound, or its record is unwanted or has another attempt; the program was not told so in vain a moment ago",
		shouldEndHold, EndHold, say[V]("its program holds connections for a binding that does not come")}
}

// Holding returns the binding that the requester program holds connections for; empty: none.
func (c *Common) Holding() string {
	if c.SPI == nil {
		return ""
	}
	return c.SPI.Proxy.Holding
}

// shouldHold reports whether the requester program is to be told to hold connections for the
// record. A call that was made in vain a moment ago is not made again: a requester is served
// without it, too.
func (s *Swapping) shouldHold() bool {
	return s.Requester.Gate && !s.Requester.Rank.IsWorker() && s.SPI != nil && s.SPI.Proxy.CanHold && !s.ForwardsTraffic() && !s.Calls.Unbind &&
		s.Attempt.Asked && !s.Attempt.Over && s.Holding() != s.Record.SwapKey() && !s.inVain(Hold)
}

// shouldEndHold reports whether the requester program is to be told to hold no connections.
// Where that was in vain, everything else goes on: what is held reaches nobody else, and is
// reset after a while.
func (e *Ending) shouldEndHold() bool { return e.holdsForNobody() && !e.inVain(EndHold) }

// shouldEndHold reports the same of a requester whose record is wanted.
func (s *Staying) shouldEndHold() bool { return s.holdsForNobody() && !s.inVain(EndHold) }

// holdsForNobody reports whether the program of a requester that stays holds connections for an
// unwanted record. A program that is told to end holds nothing from then on.
func (e *Ending) holdsForNobody() bool { return e.Holding() != "" && !e.IsLeaving() }

// holdsForNobody reports whether the requester program holds connections for something else than the
// record.
func (s *Staying) holdsForNobody() bool {
	return s.Holding() != "" && (s.isUnbound() || s.Holding() != s.Bound.Record.SwapKey())
}
