package decide

import (
	"testing"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// defects are rules that are taken out one by one, and what shows that the checks can fail.
var defects = schedules.Defects{Dirs: []string{"."}, All: []schedules.Defect{
	schedules.NewDefect("model: a replica without its label replaces one that serves",
		"l = l.plus(e.carries(min(e.ready, e.serving)))", "l = l.plus(e.carries(e.ready))",
	),
	schedules.NewDefect("model: the last replica goes before a standby serves",
		"p.suffices(p.served(), one) && p.lastMayGo(e)", "p.suffices(p.served(), one)",
	),
	schedules.NewDefect("model: a standby goes before another entry has its label",
		"min(e.serving, e.ready) > 0", "e.ready > 0",
	),
	schedules.NewDefect("model: a later standby goes before the first has its label",
		"case e.serving >= e.Min && e.ready >= e.Min:", "case e.ready >= e.Min:",
	),
	schedules.NewDefect("model: entries are asked while they back off",
		"	if e.backsOff(p.Now) {\n		e.hint(RowBacksOff", "	if e.backsOff(p.Now) && e.Name == \"\" {\n		e.hint(RowBacksOff",
	),
	schedules.NewDefect("model: the pause does not grow",
		"min(firstPause<<doubled, longestPause)", "min(firstPause<<(doubled*0), longestPause)",
	),
	schedules.NewDefect("model: the pause does not begin anew with a later failure",
		"until.After(r.BackoffUntil) {", "until.After(r.BackoffUntil) && r.Failures < 0 {",
	),
	schedules.NewDefect("model: replicas that race count once for the total",
		"total := p.TotalMax - p.total()", "total := p.TotalMax - p.carried().plus(p.hoped()).replicas",
	),
	schedules.NewDefect("model: a race does not end",
		"if goal > 0 && reached(", "if goal > 0 && p.TotalMax < 0 && reached(",
	),
	schedules.NewDefect("model: all ready Pods of a group serve",
		"!reached(p.carried()) {", "!reached(p.carried()) || p.TotalMax >= 0 {",
	),
	schedules.NewDefect("model: Pods that go keep their label",
		"		case pod.Serving:\n", "		case pod.Serving && pod.Leaving:\n",
	),
	schedules.NewDefect("model: Pods that stay keep the cost of those that go",
		"case stay[pod] && pod.Cost == goesFirst:", "case stay[pod] && pod.Cost < goesFirst:",
	),
	schedules.NewDefect("model: no Pod has a cost",
		"			if pod.Cost != goesFirst {\n", "			if pod.Cost < goesFirst {\n",
	),
	schedules.NewDefect("model: the mean says what goes",
		"p.down = max(p.up, float64(m.Demand.Peak))", "p.down = p.up",
	),
	schedules.NewDefect("model: replicas go though the demand is not known",
		"if !p.known {\n", "if !p.known && p.TotalMax < 0 {\n",
	),
	schedules.NewDefect("model: earlier entries lose ready replicas while a later one cannot",
		"return !stopped && p.suffices(", "return p.suffices(",
	),
	schedules.NewDefect("model: preferred entries are tried again and again",
		"if at < 0 || p.suffices(p.served(), p.entries[at].carries(1)) {", "if at < 0 {",
	),
	schedules.NewDefect("model: preferred entries are not tried",
		"if tried != nil && could >= p.down {", "if tried != nil && could < 0 {",
	),
	schedules.NewDefect("model: a member that fails is woken again and again, and the others are not tried",
		"n > 0 && e.record.Failures == 0 {", "n > 0 {",
	),
	schedules.NewDefect("model: failed replicas stay",
		"		case f == nil:\n", "		case f == nil || e.backsOff(p.Now):\n",
	),
}}

func TestEachDefectCanBeBroughtBack(t *testing.T) { defects.CanBeBrought(t) }

// TestEachDefectIsFound builds the simulation with each defect, and plays seeds until one shows it.
// SEEDS bounds them.
func TestEachDefectIsFound(t *testing.T) { defects.Find(t) }
