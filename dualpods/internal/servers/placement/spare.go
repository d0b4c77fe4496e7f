package placement

import (
	"cmp"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
)

// preferNodesWithoutSleepers prefers nodes on which nothing sleeps, so that a cold start evicts
// no sleeper. Requesters that are decided one after the other prefer different nodes. Otherwise
// a scheduler that takes nodes of equal score in order would fill the first ones.
func (d *decision) preferNodesWithoutSleepers(out *Decision, r *Requester, reachable func(node string) bool) {
	key := serveKey(r)
	nodes, known := d.withoutSleepers[key]
	if !known {
		nodes = d.nodesWithoutSleepers(r)
	}
	var prefer []Preference
	named := len(nodes)
	for n, node := range nodes {
		if len(prefer) == maxPreferred {
			named = n
			break
		}
		if reachable(node) {
			prefer = append(prefer, Preference{node, weightNoSleeper})
		}
	}
	if d.withoutSleepers[key] = slices.Concat(nodes[named:], nodes[:named]); len(prefer) > 0 {
		out.Why += "; it prefers nodes on which nothing sleeps"
	}
	out.Prefer = append(out.Prefer, prefer...)
}

// nodesWithoutSleepers returns the nodes whose launcher may serve a requester and has no sleeper.
// Nodes with the fewest taken GPUs come first. It returns none when nothing sleeps anywhere.
func (d *decision) nodesWithoutSleepers(r *Requester) (nodes []string) {
	asleep := false
	for _, l := range d.serving(r) {
		if l.Instances == nil {
			continue
		}
		if l.hasSleeper() {
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

// hasSleeper reports whether an instance of a launcher is asleep.
func (l *Launcher) hasSleeper() bool {
	for id := range l.Instances {
		if l.Instances[id].State == string(launcher.Sleeping) {
			return true
		}
	}
	return false
}
