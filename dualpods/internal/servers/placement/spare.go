package placement

import (
	"cmp"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// spare has a requester whose model is near nowhere go where nothing sleeps, so that the
// sleepers there are wait for those who would wake them. Requesters name other nodes one
// after the other: a scheduler that takes nodes of equal score in order would else fill
// the first ones.
func (d *decision) spare(out *Decision, r *Requester, goes func(node string) bool) {
	key := asked(r)
	nodes, known := d.awake[key]
	if !known {
		nodes = d.nodesAwake(r)
	}
	var prefer []Preference
	named := len(nodes)
	for n, node := range nodes {
		if len(prefer) == maxPreferred {
			named = n
			break
		}
		if goes(node) {
			prefer = append(prefer, Preference{node, weightAwake})
		}
	}
	if d.awake[key] = slices.Concat(nodes[named:], nodes[:named]); len(prefer) > 0 {
		out.Why += "; it prefers nodes on which nothing sleeps"
	}
	out.Prefer = append(out.Prefer, prefer...)
}

// nodesAwake are the nodes on which nothing sleeps of those where launchers serve a
// requester, first those of whose GPUs the fewest are taken; none where nothing sleeps
// anywhere.
func (d *decision) nodesAwake(r *Requester) (nodes []string) {
	asleep := false
	for _, l := range d.serve(r) {
		if l.Instances == nil {
			continue
		}
		if l.sleeps() {
			asleep = true
			continue
		}
		nodes = append(nodes, l.Node)
	}
	if !asleep {
		return nil
	}
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(d.Taken[a]), len(d.Taken[b])), strings.Compare(a, b))
	})
	return nodes
}

// sleeps says that some instance of a launcher does.
func (l *Launcher) sleeps() bool {
	for id := range l.Instances {
		if l.Instances[id].State == string(launcher.Sleeping) {
			return true
		}
	}
	return false
}
