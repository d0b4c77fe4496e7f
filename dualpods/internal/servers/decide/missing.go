package decide

import "time"

// Copy is what the launcher says of a model that its requester waits for.
type Copy struct {
	Whole  bool
	Silent time.Time // since when the launcher does not say what it has; zero: it does
	Why    string    // the launcher cannot have the model, or does not say; empty: it may have it
}

// lacksModel reports whether the requester waits for its model, and nothing is there that would
// serve it without the launcher's copy.
func (o *Observation) lacksModel() bool {
	return o.Record == nil && o.Keeper != nil && o.Keeper.Waits && o.instanceEndedOrGone() && !o.Copy.Whole
}

// untilMissing returns how long a launcher is still waited for that does not say what models it
// has; 0 and less: it says so, or has not for long.
func (o *Observation) untilMissing() time.Duration { return Patience - o.Now.Sub(o.Copy.Silent) }

// missing says why a model is waited for.
func (o *Observation) missing() string {
	why := o.Copy.Why
	if why == "" {
		why = o.Keeper.Node
	}
	return why + "; ClusterModelCache " + o.Keeper.Name + " has who names the model wait (onMissing: Wait)"
}
