package rollout

// Replica is a replica of a role that a group should have.
type Replica struct {
	IsThere  bool // it has a Pod that stays
	Outdated bool // a Pod of it has another template of the role than the group is to have
	Ready    bool // all its Pods are there, and ready
}

// RoleWorld is the input of a decision about a role of a group.
type RoleWorld struct {
	Strategy           // about replicas instead of groups
	HasOld   bool      // there is an older template of the role, for replicas without Pods
	Replicas []Replica // by ordinal
}

// RoleTarget says which template of its role a replica is to have.
type RoleTarget struct {
	Row string
	Old bool // its own; without Pods, that of the revision that was rolled out last
}

// roleRow is a row of the table. ok is false if the row does not fit.
type roleRow struct {
	name string
	fits func(w *RoleWorld, n int) (old, ok bool)
}

var roleRows = []roleRow{
	{"up to date", func(w *RoleWorld, n int) (bool, bool) {
		return false, w.Replicas[n].IsThere && !w.Replicas[n].Outdated
	}},
	{"kept, without Pods", func(w *RoleWorld, n int) (bool, bool) {
		return true, n < w.Partition && !w.Replicas[n].IsThere && w.HasOld
	}},
	{"new", func(w *RoleWorld, n int) (bool, bool) { return false, !w.Replicas[n].IsThere }},
	{"kept", func(w *RoleWorld, n int) (bool, bool) { return true, n < w.Partition }},
	{"does not run", func(w *RoleWorld, n int) (bool, bool) { return false, !w.Replicas[n].Ready }},
	{"its turn", func(w *RoleWorld, n int) (bool, bool) { return false, w.before(n) < w.MaxUnavailable-w.unready() }},
	{"waits", func(*RoleWorld, int) (bool, bool) { return true, true }},
}

// DecideRole returns the target of each replica of a role of a group.
func DecideRole(w *RoleWorld) []RoleTarget {
	targets := make([]RoleTarget, len(w.Replicas))
	for n := range w.Replicas {
		for _, r := range roleRows {
			if old, ok := r.fits(w, n); ok {
				targets[n] = RoleTarget{r.name, old}
				break
			}
		}
	}
	return targets
}

// unready counts the replicas that are not ready. A replica that keeps its template counts for nothing.
func (w *RoleWorld) unready() (n int) {
	for at, r := range w.Replicas {
		isKept := at < w.Partition && (r.IsThere && r.Outdated || !r.IsThere && w.HasOld)
		if !r.Ready && !isKept {
			n++
		}
	}
	return n
}

// before counts the replicas that are ready and are replaced before this one.
func (w *RoleWorld) before(n int) (count int) {
	for other := max(n+1, w.Partition); other < len(w.Replicas); other++ {
		if r := w.Replicas[other]; r.Outdated && r.Ready {
			count++
		}
	}
	return count
}
