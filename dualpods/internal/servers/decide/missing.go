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
func (r *Recording) lacksModel() bool {
	return r.Keeper != nil && r.Keeper.Waits && endedOrGone(r.Instance) && !r.Copy.Whole
}

// untilMissing returns how long a launcher is still waited for that does not say what models it
// has; 0 and less: it says so, or has not for long.
func (r *Recording) untilMissing() time.Duration { return Patience - r.Now.Sub(r.Copy.Silent) }

// missing says why a model is waited for.
func (r *Recording) missing() string {
	why := r.Copy.Why
	if why == "" {
		why = r.Keeper.Node
	}
	return why + "; ClusterModelCache " + r.Keeper.Name + " has who names the model wait (onMissing: Wait)"
}
