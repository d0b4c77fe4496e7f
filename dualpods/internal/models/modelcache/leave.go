package modelcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// leave decides for a store where the model is not wanted, or not any more.
func (d *decision) leave(c *v1alpha1.ClusterModelCache, holder string, told *Told, at store) {
	s := d.stores[at]
	for launcher, answer := range d.pulls[holder] {
		if d.byUID[launcher] == s && answer.pending(d.Now) { // a fetch may begin
			told.Clean = false
			d.later(d.Now.Add(settle))
		}
	}
	if s.Models == nil {
		mayHave := slices.Contains(c.Spec.Groups(), s.Group) || slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.ModelNode) bool { return n.Node == at.node })
		if node, exists := d.Nodes[at.node]; mayHave && exists && !node.Down && !c.DeletionTimestamp.IsZero() {
			told.Clean = false
			told.block("launcher " + s.Name + " on node " + at.node + " does not answer: " + s.Why)
			told.add(v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, Why: "launcher " + s.Name + " does not answer: " + s.Why})
		}
		return
	}
	if _, has := s.holds[holder]; !has {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(s.Models)) {
		m := s.Models[id]
		if !slices.Contains(m.WantedBy, holder) {
			continue
		}
		told.Clean = false
		n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, InUseBy: d.users(c.Name, at.node, m.InUseBy)}
		if why := d.remove(s, holder, m); why != "" {
			n.Why = why
			told.block("node " + at.node + ": " + why)
		}
		told.add(n)
	}
}

func (t *Told) block(why string) { t.Blocked = cmp.Or(t.Blocked, why) }

// remove has a launcher drop what a holder wanted. It gives what is in the way.
func (d *decision) remove(s *speaker, holder string, m nodeview.Model) (blocked string) {
	call := Call{Launcher: s.UID, Holder: holder, Remove: m.ID}
	answer := d.Answers[call]
	// The launcher, or the API server, tells when that is over.
	if users := d.users(nameOf(holder), s.Node, m.InUseBy); len(users) > 0 {
		return "it is in use by " + strings.Join(users, ", ")
	}
	if answer.pending(d.Now) {
		if !answer.Running {
			d.later(answer.At.Add(settle))
		}
		return ""
	}
	if answer.Err != "" && d.later(answer.again()) || d.room <= 0 {
		return answer.Err
	}
	d.ask(call)
	return answer.Err
}

// orphans has launchers drop what caches wanted that are no more: their nodes were
// away when they went.
func (d *decision) orphans(holders map[string]bool) {
	for _, at := range d.places {
		s := d.stores[at]
		if s == nil {
			continue
		}
		for holder := range s.holds {
			if !strings.HasPrefix(holder, holderPrefix) || holders[holder] {
				continue
			}
			for _, m := range s.Models {
				if slices.Contains(m.WantedBy, holder) {
					d.remove(s, holder, m)
				}
			}
		}
	}
}

// users are those of a cache's model on a node: instances, by what its launcher says, and
// Pods that mount it.
func (d *decision) users(cache, node string, instances []string) []string {
	return append(slices.Clone(instances), d.Mounted[cache][node]...)
}
