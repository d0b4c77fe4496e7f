package scheduler

import (
	"testing"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// defects are rules that are taken out one by one, and what shows that the checks can fail.
var defects = schedules.Defects{Dirs: []string{"."}, All: []schedules.Defect{
	schedules.NewDefect("scheduler: a pinned model leaves",
		"		case o.Pinned:\n", "		case o.Pinned && o.Name == m.Name:\n",
	),
	schedules.NewDefect("scheduler: a lower priority puts a higher one to sleep",
		"case o.Priority > m.Priority && inUse:", "case o.Priority > m.Priority && inUse && o.Pinned:",
	),
	schedules.NewDefect("scheduler: turns are not kept",
		"	if inUse && turn.After(stays) {\n", "	if inUse && turn.After(stays) && turn.IsZero() {\n",
	),
	schedules.NewDefect("scheduler: min_residency is not kept",
		"stays, turn := o.Since.Add(d.MinResidency), o.Since.Add(d.Turn)", "stays, turn := o.Since, o.Since.Add(d.Turn)",
	),
	schedules.NewDefect("scheduler: a model that waits reserves nothing",
		"	if p.rank == later && m.Waiting > 0 {\n", "	if p.rank == later && m.Waiting < 0 {\n",
	),
	schedules.NewDefect("scheduler: the latest model comes first",
		"a.waitsSince().Compare(b.waitsSince())", "b.waitsSince().Compare(a.waitsSince())",
	),
	schedules.NewDefect("scheduler: requests are let through while their model leaves",
		"s.demand(name).acting, s.demand(name).awake = &a, false", "s.demand(name).acting = &a",
		"d.limit, d.awake = m.Concurrency, m.State == launcher.Awake && !m.Busy", "d.limit, d.awake = m.Concurrency, m.State == launcher.Awake || m.State == launcher.Sleeping && m.Busy",
	),
	schedules.NewDefect("scheduler: a GPU is given away while the fleet does not show the new instance",
		"			m.On = d.acting.GPUs\n", "			m.On = nil\n",
	),
	schedules.NewDefect("scheduler: the GPUs of a model that has vanished are given away while it starts",
		"	models = append(models, s.forget(there)...)\n", "	s.forget(there)\n",
	),
	schedules.NewDefect("scheduler: a failed start is tried again at once",
		"	d.notBefore = now.Add(heldBackFor)\n	if d.failures < heldBackAfter {\n		d.notBefore = now.Add(shortestBackOff << (d.failures - 1))\n	}\n", "	_ = now\n",
	),
	schedules.NewDefect("scheduler: more requests are let through than the model answers at once",
		"return d.awake && (d.limit == 0 || d.answered < d.limit)", "return d.awake && (d.limit == 0 || d.answered <= d.limit)",
	),
	schedules.NewDefect("scheduler: requests overtake others",
		"	d.waiting = append(d.waiting, t)\n", "	d.waiting = append([]*Ticket{t}, d.waiting...)\n",
	),
	schedules.NewDefect("scheduler: models are kept awake though nobody asked for them",
		"		if (m.Waiting > 0 || m.Preload && !m.Retired) &&", "		if (m.Waiting > 0 || m.Preload && !m.Retired || m.StopAfter > 0) &&",
	),
	schedules.NewDefect("scheduler: sleep_after counts while requests are answered",
		"		row, used = rowInUse, d.Now\n", "		row = rowInUse\n",
	),
	schedules.NewDefect("scheduler: it looks without a pause",
		"		pause.Reset(min(max(betweenSteps, pauses*time.Since(began)), longestPause))\n", "		pause.Reset(0 * time.Since(began))\n",
	),
}}

func TestEachDefectCanBeBroughtBack(t *testing.T) { defects.CanBeBrought(t) }

// TestEachDefectIsFound builds the simulation with each defect, and plays seeds until one shows
// it. SEEDS bounds them.
func TestEachDefectIsFound(t *testing.T) { defects.Find(t) }
