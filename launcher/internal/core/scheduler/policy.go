package scheduler

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// retire has a model that nobody uses fall asleep or end when its time has come.
func (d *decider) retire(m *Model) {
	switch row, again := d.policy(m); row {
	case rowStopTime, rowRetired:
		d.out.Actions = append(d.out.Actions, Action{Row: row, Kind: Stop, Model: m.Name})
	case rowSleepTime:
		d.out.Actions = append(d.out.Actions, Action{Row: row, Kind: Sleep, Model: m.Name, Level: m.SleepLevel})
	default:
		d.wakeAt(again)
	}
}

// retiredLook is when a retired model in use is looked at again: the end of its last answer may not
// be told.
const retiredLook = 10 * time.Second

// policy returns the row of a model's sleep_after and stop_after, and when to look again. It looks
// again at a model in use too, so that the ends of its answers need not be told.
func (d *decider) policy(m *Model) (string, time.Time) {
	row, used := rowStays, m.unusedSince()
	switch {
	case m.isRetiredStart() && !m.NotBefore.After(d.Now):
		return rowRetired, d.Now
	case !m.mayRetire():
		return rowNeither, time.Time{}
	case m.Preload && !m.Retired:
		return rowPreloaded, time.Time{}
	case m.InFlight > 0 || m.Waiting > 0:
		row, used = rowInUse, d.Now
	case d.isLeaving(m):
		return rowLeaving, time.Time{}
	case m.NotBefore.After(d.Now):
		return rowRefused, m.NotBefore
	}
	if m.Retired {
		return d.retirement(row)
	}
	stops, sleeps := after(used, m.StopAfter), time.Time{}
	if m.State == launcher.Awake {
		sleeps = after(used, m.SleepAfter)
	}
	switch {
	case d.isOver(stops):
		return rowStopTime, stops
	case d.isOver(sleeps):
		return rowSleepTime, sleeps
	case stops.IsZero() || !sleeps.IsZero() && sleeps.Before(stops):
		return row, sleeps
	}
	return row, stops
}

// isRetiredEnd reports whether the instance of a retired model has ended, and only has to be
// forgotten.
func (m *Model) isRetiredEnd() bool { return m.Retired && m.State.Ended() }

// mayRetire reports whether a model is in a state in which it can be told to sleep or to end.
func (m *Model) mayRetire() bool {
	return !m.isChanging() && (m.State == launcher.Awake || m.State == launcher.Sleeping || m.isRetiredEnd())
}

// isRetiredStart reports whether a retired model starts, and nothing else changes it: nobody needs to
// wait for the end of that start.
func (m *Model) isRetiredStart() bool {
	return m.Retired && !m.Busy && m.State == launcher.Starting && m.Waiting == 0
}

// retirement returns the row of a retired model, which otherwise has row.
func (d *decider) retirement(row string) (string, time.Time) {
	if row == rowInUse {
		return row, d.Now.Add(retiredLook)
	}
	return rowRetired, d.Now
}

// unusedSince returns from when on sleep_after and stop_after count.
func (m *Model) unusedSince() time.Time {
	if m.LastUsed.IsZero() || m.State == launcher.Awake && m.Since.After(m.LastUsed) {
		return m.Since
	}
	return m.LastUsed
}

func (d *decider) isOver(t time.Time) bool { return !t.IsZero() && !t.After(d.Now) }

// after returns when a time without requests is over; zero: never.
func after(used time.Time, unused time.Duration) time.Time {
	if unused == 0 {
		return time.Time{}
	}
	return used.Add(unused)
}

// isLeaving reports whether an awake model is about to leave for another one.
func (d *decider) isLeaving(m *Model) bool {
	return m.State == launcher.Awake && slices.ContainsFunc(m.On, func(g string) bool { return d.taken[g] != "" && d.taken[g] != m.Name })
}
