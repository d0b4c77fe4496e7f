package decide

import "hotseat.dev/hotseat/dualpods"

// Staying is what the tables stranded, preparing and reaching read: a requester that stays. If it has
// a record, the record is wanted.
type Staying struct {
	*Common
	Bound     *Bound                 // nil: it is not bound
	Launched  *Launched              // nil: there is no launcher
	Lacking   *dualpods.LauncherWait // why none can be made now; nil: one can
	Unread    string                 // what is wrong with a record that may be its own; empty: there is none
	Rivals    []string               // other living requesters that have one of its GPUs
	AsksAhead bool                   // the kubelet is asked before the requester program runs
}

// staying returns a requester that stays, with its record, which is b's, or without one.
func (o *Observation) staying(b *Bound) *Staying {
	return &Staying{
		Common: &o.Common, Bound: b, Launched: o.launched(), Lacking: o.Lacking, Unread: o.Unread, Rivals: o.Rivals, AsksAhead: o.AsksAhead,
	}
}

// bound returns the requester with its record; nil: it is not bound.
func (s *Staying) bound() *Bound { return s.Bound }

// whereBound has a row decide about those that are bound.
func whereBound(r RowOf[Bound]) RowOf[Staying] { return on((*Staying).bound, r) }

// launched returns the requester with its launcher; nil: there is none.
func (s *Staying) launched() *Launched { return s.Launched }

// candidate returns a requester that is not bound, with the launcher that would serve it; nil: it
// is bound, or there is none.
func (s *Staying) candidate() *Launched {
	if s.Bound != nil {
		return nil
	}
	return s.Launched
}

// launcherConnected reports whether there is a launcher, and answers.
func (s *Staying) launcherConnected() bool {
	return s.Launched != nil && s.Launched.Launcher.Connected
}

// isUnbound reports whether nobody is bound to the requester.
func (s *Staying) isUnbound() bool { return s.Bound == nil }

// gpusUnsettled reports whether the requester still has to say, or the kubelet, which GPUs it has:
// before it is bound, and once more when its program runs if it was bound before.
func (s *Staying) gpusUnsettled() bool { return s.Bound == nil || s.Bound.isToBeCompared() }

// kubeletHasNotAnswered reports whether the kubelet is to be asked which GPUs a requester has,
// and has not said.
func (s *Staying) kubeletHasNotAnswered() bool { return s.gpusUnsettled() && s.kubeletSilent() }
