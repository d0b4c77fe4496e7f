package modelcache

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// dropUnwanted decides for a store in which the model is not wanted.
func (d *decision) dropUnwanted(c *v1alpha1.ClusterModelCache, holder string, report *Report, at store) {
	s := d.stores[at]
	for launcher, answer := range d.pulls[holder] {
		if d.byUID[launcher] == s && answer.pending(d.Now) { // a fetch may begin
			report.NothingLeft = false
			d.waitUntil(d.Now.Add(watchDelay))
		}
	}
	if s.Models == nil {
		mayHave := slices.Contains(c.Spec.Groups(), s.Group) || slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.ModelNode) bool { return n.Node == at.node })
		if node, exists := d.Nodes[at.node]; mayHave && exists && !node.Down && !c.DeletionTimestamp.IsZero() {
			report.NothingLeft = false
			report.blockDeletion("launcher " + s.Name + " on node " + at.node + " does not answer: " + s.Why)
			report.add(v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, Why: "launcher " + s.Name + " does not answer: " + s.Why})
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
		report.NothingLeft = false
		n := v1alpha1.ModelNode{Node: at.node, State: v1alpha1.ModelNodeRemoving, InUseBy: d.users(c.Name, at.node, m.InUseBy)}
		if why := d.dropModel(s, holder, m); why != "" {
			n.Why = why
			report.blockDeletion("node " + at.node + ": " + why)
		}
		report.add(n)
	}
}

func (t *Report) blockDeletion(why string) { t.Blocked = cmp.Or(t.Blocked, why) }

// dropModel calls a launcher to drop a model for a holder. It returns what prevents it.
func (d *decision) dropModel(s *storeView, holder string, m nodeview.Model) (blocked string) {
	call := Call{Launcher: s.UID, Holder: holder, Remove: m.ID}
	answer := d.Answers[call]
	// An event of the launcher or of the API server reports the end of the use.
	if users := d.users(nameOf(holder), s.Node, m.InUseBy); len(users) > 0 {
		return "it is in use by " + strings.Join(users, ", ")
	}
	if answer.pending(d.Now) {
		if !answer.Running {
			d.waitUntil(answer.AnsweredAt.Add(watchDelay))
		}
		return ""
	}
	if answer.Err != "" && d.waitUntil(answer.retryAt()) || d.callsLeft <= 0 {
		return answer.Err
	}
	d.startCall(call)
	return answer.Err
}

// dropInTheWay makes a launcher drop the damaged copies that its store has for a cache, and of the
// hub's model other versions, to make room for the version that is to be fetched. It reports whether
// such a call runs. A damaged copy of that version itself stays, because its other files are not
// fetched again.
func (d *decision) dropInTheWay(c *v1alpha1.ClusterModelCache, report *Report, s *storeView) (dropping bool) {
	holder, named := Holder(c), isNamed(c)
	for _, id := range slices.Sorted(maps.Keys(s.Models)) {
		m := s.Models[id]
		inTheWay := m.State == launcherapi.ModelDamaged && (!named || m.Revision != report.Revision) ||
			m.State == launcherapi.ModelReady && named && isOther(m.Model, report.Revision)
		if !inTheWay || !slices.Contains(m.WantedBy, holder) {
			continue
		}
		blocked := d.dropModel(s, holder, m)
		dropping = dropping || blocked == ""
	}
	return dropping
}

// dropOrphans makes launchers drop the models of deleted caches. Their nodes were not ready
// when the caches were deleted.
func (d *decision) dropOrphans(holders map[string]bool) {
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
					d.dropModel(s, holder, m)
				}
			}
		}
	}
}

// users returns the users of a cache's model on a node: the instances that its launcher
// reports, and the Pods that mount it.
func (d *decision) users(cache, node string, instances []string) []string {
	return append(slices.Clone(instances), d.Mounted[cache][node]...)
}
