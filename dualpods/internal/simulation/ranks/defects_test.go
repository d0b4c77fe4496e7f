package ranks

import (
	"testing"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// defects are what was wrong once, and rules that are taken out one by one.
var defects = schedules.Defects{Dirs: []string{"../../roles/groups", "../../roles/restarts", "../../servers/decide", "../../servers/binding", "../../../../spec/podmeta"}, Test: "NoScheduleBreaks", All: []schedules.Defect{
	// Faults that there were once.
	schedules.NewDefect("a rank that waits for its commit is told to sleep when its requester leaves",
		"b.Instance.SwapID != \"\" && !b.Attempt.Over\n", "b.Instance.SwapID != \"\" && !b.Attempt.Over && false\n",
		"step.orders(Stop, s.all((*Member).isToStop))", "step.orders(Stop, s.all((*Member).isAtWork))",
	),
	schedules.NewDefect("a worker whose entry has ended is told to sleep again and again",
		"		return told >= 1\n", "		return told >= enoughSleeps\n",
		"step.orders(Stop, s.all((*Member).isToStop))", "step.orders(Stop, s.all((*Member).isAtWork))",
	),
	schedules.NewDefect("a worker starts again in the start of an entry that is healthy",
		"		return strayed || s.isLate(m) || (m", "		return strayed || (m",
	),
	schedules.NewDefect("ranks begin though a rank of their start is surplus",
		"		return s.Resized && step", "		return s.Resized && false && step",
	),

	// Rules that are taken out.
	schedules.NewDefect("ranks begin before all have prepared",
		"return !s.any((*Member).prepares) && step.orders(Go,", "return step.orders(Go,",
	),
	schedules.NewDefect("ranks are committed before all are healthy",
		"return s.every(func(m *Member) bool { return m.isHealthy() || m.serves() }) && step.orders(Commit,", "return step.orders(Commit,",
	),
	schedules.NewDefect("the entry is committed first",
		"	slices.Reverse(ranks)\n", "",
	),
	schedules.NewDefect("the others go on when a rank is lost",
		"		return lost != nil && step.orders(Stop,", "		return lost != nil && false && step.orders(Stop,",
	),
	schedules.NewDefect("a rank goes on in another start than the entry",
		"		return strayed || s.isLate(m) ||", "		return strayed && false || s.isLate(m) ||",
	),
	schedules.NewDefect("a rank is told of the start by another attempt",
		"Attempt: s.recordOf(m).SwapKey(), Group:", "Attempt: s.recordOf(s.Of).SwapKey(), Group:",
	),
	schedules.NewDefect("each rank has a start of its own",
		"Group: s.recordOf(s.Of).SwapKey(), Entry:", "Group: s.recordOf(m).SwapKey(), Entry:",
	),
	schedules.NewDefect("instances of earlier servers stay",
		"		return s.mayTell() && !s.wakes() && step.orders(Remove,", "		return s.mayTell() && !s.wakes() && false && step.orders(Remove,",
	),
	schedules.NewDefect("a rank asks for its swap before it is told of a start",
		"	return a.absentOrAsleep() && a.Requester.Rank.IsOne() && !a.isToldOfServer()", "	return a.absentOrAsleep() && a.Requester.Rank.IsOne() && !a.isToldOfServer() && false",
	),
	schedules.NewDefect("a new process does not ask for the swaps of ranks",
		"	return b.Requester.Rank.IsOne() && !b.Attempt.Asked && b.isToldOfServer() &&", "	return b.Requester.Rank.IsOne() && !b.Attempt.Asked && b.isToldOfServer() && false &&",
	),
	schedules.NewDefect("nobody looks at a ModelServing when a swap comes to another phase",
		"			c.opts.SwapMoved(n.name)\n", "",
	),
	schedules.NewDefect("ranks that serve are stopped",
		"		strayed := m.isAtWork() && (", "		strayed := m.serves() && m.isAtWork() && s.Now.Nanosecond()%16 == 0 || m.isAtWork() && (",
	),

	// Rules about restarts.
	schedules.NewDefect("the grace of a Pod is over at once",
		"		return of.UID == p.UID && left(g.Now, of.Since.Time, g.Grace) <= 0\n", "		return of.UID == p.UID\n",
	),
	schedules.NewDefect("a requester goes though its server is to be started again",
		"{ return b.diedWhileItServed() && !b.staysAtExit() }", "{ return b.diedWhileItServed() }",
	),
	schedules.NewDefect("the others go on when a rank stays ended",
		" || m.staysEnded()\n", "\n",
	),

	schedules.NewDefect("Pods are deleted before the status says so",
		"	if w.isToRecord() {\n", "	if w.isToRecord() && false {\n",
	),
	schedules.NewDefect("the instances of a server are deleted though its Pods are ready",
		"case g.isOverdue(&p, record):", "case g.isOverdue(&p, record) || g.Now.Nanosecond()%64 == 0:",
	),

	// Rules of changes in place that are taken out.
	schedules.NewDefect("a change is committed before the status says so",
		"		return c.is(v1alpha1.ChangeBegun) && c.every(c.isHealthy) && s.becomes(", "		return c.is(v1alpha1.ChangeBegun) && c.every(c.isHealthy) && s.orders(Commit, c.those(c.isHealthy)) && s.becomes(",
	).In(mixes),
	schedules.NewDefect("a change is committed before all new models are healthy",
		"return c.is(v1alpha1.ChangeBegun) && c.every(c.isHealthy) && s", "return c.is(v1alpha1.ChangeBegun) && len(c.those(c.isHealthy)) > 0 && s",
	).In(mixes),
	schedules.NewDefect("a rank asks for the swap of its change before it is told of the start",
		"	return c.isNotAsked() && c.Requester.Rank.IsOne() && c", "	return c.isNotAsked() && c.Requester.Rank.IsOne() && false && c",
	).In(mixes),
	schedules.NewDefect("ranks of a change that is under way are stopped as those of a start",
		"		return s.any(func(m *Member) bool { return m.isBound() && m.Bound.Record.Change != nil })", "		return false && s.any(func(m *Member) bool { return m.isBound() && m.Bound.Record.Change != nil })",
	).In(mixes),
	schedules.NewDefect("the old start is forgotten with the change",
		"for _, key := range []string{AnnotationServer, AnnotationNextServer} {", "for _, key := range []string{AnnotationServer} {",
	).In(mixes),
	schedules.NewDefect("a model sleeps before all launchers have prepared",
		"c.every(c.hasPrepared) && s.orders(Go,", "s.orders(Go,",
	).In(mixes),
	schedules.NewDefect("a group is created again while its old models wake",
		"c.runs || c.isUndone() || c.recovers()", "c.runs || c.isUndone()",
	).In(mixes),
	schedules.NewDefect("an undone change is forgotten when it is the turn of another group",
		"undone && (c.was.Revision != c.w.Revision && !c.recovers() || !c.any(isOther))", "undone && (c.was.Revision != c.target || !c.any(isOther))",
	).In(mixes),
	schedules.NewDefect("Pods stay told of a change that is undone before the cache shows them",
		"return c.is(v1alpha1.ChangeUndone) && c.any(", "return false && c.is(v1alpha1.ChangeUndone) && c.any(",
	).In(mixes),
	schedules.NewDefect("ranks that are in each other's way are woken again and again",
		"m.Bound.Record.Failures >= failuresInVain", "m.Bound.Record.Failures >= failuresInVain && false",
	).In(mixes),
}}

// mixes is the test that plays changes in place.
const mixes = "NoScheduleMixes"

func TestEachDefectCanBeBroughtBack(t *testing.T) { defects.CanBeBrought(t) }

// TestEachDefectIsFound builds the simulation with each defect, and plays seeds until one shows it.
// SEEDS bounds them.
func TestEachDefectIsFound(t *testing.T) { defects.Find(t) }
