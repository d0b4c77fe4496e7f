package gang

import (
	"testing"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// defects are rules that are taken out one by one, and what shows that the checks can fail.
var defects = schedules.Defects{Dirs: []string{"."}, All: []schedules.Defect{
	schedules.NewDefect("gang: a group that missed its deadline keeps its nodes",
		"return g.isOverdue(d.now) && len(s.Delete) > 0 &&", "return false && g.isOverdue(d.now) && len(s.Delete) > 0 &&",
	),
	schedules.NewDefect("gang: nobody looks at the deadline once all gates are gone",
		"g.Gang.State == v1alpha1.GangAdmitted || w.Now.Before", "w.Now.Before",
	),
	schedules.NewDefect("gang: the GPUs of Pods that are about to get nodes are given away again",
		"d.reserved[g] = d.room.reserve(awaited, g.area())", "d.reserved[g] = nil",
	),
	schedules.NewDefect("gang: groups are admitted without room",
		"return d.take(g, s, g.counted, true) && s.records", "return s.records",
	),
	schedules.NewDefect("gang: extra Pods may get nodes before those that are counted",
		"		return d.take(g, s, g.counted, true) && s.records(v1alpha1.GangAdmitted, d.now, g.Record.Misses) && s.ungates(g.counted)",
		"		return d.take(g, s, g.counted, true) && s.records(v1alpha1.GangAdmitted, d.now, g.Record.Misses) && s.ungates(at(g.all(), isGated))",
	),
	schedules.NewDefect("gang: a group that missed its deadline is never tried again",
		"g.Record.State == v1alpha1.GangMissed && d.now.Before(g.retryAt())", "g.Record.State == v1alpha1.GangMissed",
	),
	schedules.NewDefect("gang: the scheduler is not told of the domain",
		"		s.in.group.apply(&is.Spec, isHard(s.Of.topology()))\n", "",
	),
	schedules.NewDefect("gang: the rest of a group gets nodes in any domain",
		"all := []domain{g.domain()}", "all := []domain{{}}",
	),
	schedules.NewDefect("gang: the domain is forgotten once the group is placed",
		"s.Record.Domain = s.Of.Record.Domain", "s.Record.Domain = \"\"",
	),
	schedules.NewDefect("gang: the scheduler is not told of the domains of replicas",
		"		s.in.replicas[m.of].apply(&is.Spec, isHard(s.Of.roleTopology()))\n", "",
	),
	schedules.NewDefect("gang: the rest of a replica gets nodes in any domain",
		"	if _, known := in.replicas[r]; known {", "	if _, known := in.replicas[r]; known && false {",
	),
	schedules.NewDefect("gang: a lost Pod waits until there is room for new replicas",
		"		if len(fit) > 0 {", "		if len(fit) == len(at(g.counted, isGated)) {",
	),
}}

func TestEachDefectCanBeBroughtBack(t *testing.T) { defects.CanBeBrought(t) }

// TestEachDefectIsFound builds the simulation with each defect, and plays seeds until one shows
// it. SEEDS bounds them.
func TestEachDefectIsFound(t *testing.T) { defects.Find(t) }
