package scheduler

import (
	"fmt"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// How long a model that failed is left alone. The pause doubles with each failure in a row; after
// heldBackAfter of them the model is held back: requests for it are refused at once.
const (
	shortestBackOff = time.Second
	heldBackAfter   = 5
	heldBackFor     = 5 * time.Minute

	wellAfter     = time.Minute            // a model that was awake for so long has no failures in a row
	afterConflict = 200 * time.Millisecond // the pause after somebody else got there first
	mostConflicts = 25                     // after so many of them in a row it counts as a failure
	afterRefusal  = 10 * time.Second       // the pause after a sleep or a stop that failed
)

// NotBroughtInError says why a model is not awake. Its cause has the code of a [launcher.Error],
// if the launcher tried.
type NotBroughtInError struct {
	Model    string
	Err      error
	Retry    time.Duration // when it is tried again; 0: nothing was tried
	HeldBack int           // how often it has failed in a row, if it is held back for it
}

func (e *NotBroughtInError) Error() string {
	text := fmt.Sprintf("the model %s could not be made awake: %v", e.Model, e.Err)
	if e.HeldBack > 0 {
		text += fmt.Sprintf("; it is held back, since it has failed %d times in a row, and is tried again in %s", e.HeldBack, e.Retry.Round(time.Second))
	}
	return text
}

func (e *NotBroughtInError) Unwrap() error { return e.Err }

// LeaverFailedError says that an action failed since the engine of a model that was to leave has
// ended meanwhile. The GPUs of that one are free.
type LeaverFailedError struct{ Err error }

func (e *LeaverFailedError) Error() string { return e.Err.Error() }

func (e *LeaverFailedError) Unwrap() error { return e.Err }

// code returns the code of the error of a model that waits in vain.
func (w *Wait) code() string {
	if w.Row == rowHindered {
		return launcherapi.CodeExists
	}
	return launcherapi.CodeDoesNotFit
}

func closing(model string) error {
	return &NotBroughtInError{Model: model, Err: launcher.Unavailablef("the launcher is closing")}
}

// demand is what the scheduler knows of a model.
type demand struct {
	awake    bool      // when it was last looked at or brought in, and no action has begun since
	limit    int       // how many requests it answers at once; 0: any number
	waiting  []*Ticket // in the order in which they came
	answered int       // how many requests are being answered
	lastUsed time.Time
	repeats  bool   // as in Model
	why      string // why it is not awake, if requests wait or were refused for it
	hopeless bool   // that reason refused the requests, and stays until the model is awake

	on         []string // its GPUs, when it was last looked at
	acting     *Action  // that changes it now; nil: none does
	took       time.Duration
	awakeSince time.Time // when it last became awake
	wasAwake   bool      // when it was last looked at

	failures  int   // in a row
	cause     error // of the last one
	conflicts int   // in a row
	notBefore time.Time
}

func (s *Scheduler) demand(model string) *demand {
	d := s.models[model]
	if d == nil {
		d = &demand{}
		s.models[model] = d
	}
	return d
}

// renewWhy forgets the reason of an earlier look, unless it still holds.
func (d *demand) renewWhy(m *Model) {
	switch {
	case d.acting != nil:
	case m.State.Moving():
		d.why = "it is " + strings.ReplaceAll(string(m.State), "_", " ")
	case d.awake || !d.hopeless:
		d.why, d.hopeless = "", false
	}
}

// reason says what an action does, for those who wait for its model.
func (a *Action) reason() string {
	out := strings.Join(a.Out, ", ")
	switch a.Row {
	case rowWakesInTurn:
		return "it wakes once " + out + " sleeps"
	case rowStartsInTurn:
		return "it starts once " + out + " sleeps"
	case rowMoves:
		return "it moves to other GPUs"
	}
	switch a.Kind {
	case Sleep:
		return "it falls asleep"
	case Stop:
		return "it stops"
	case Start, Wake:
	}
	return "it " + a.Row // wakes or starts
}

// see notes what a look shows: a model that has been awake for a while is well, and an engine that
// ended while it was awake has failed.
func (d *demand) see(m *Model) {
	now := time.Now()
	switch {
	case m.State == launcher.Awake:
		if !m.Since.Equal(d.awakeSince) {
			d.awakeSince, d.notBefore, d.repeats = m.Since, time.Time{}, false
		}
		if now.Sub(m.Since) >= wellAfter {
			d.failures = 0
		}
	case m.State == launcher.Failed && d.wasAwake:
		if m.Since.Sub(d.awakeSince) >= wellAfter {
			d.failures = 0
		}
		d.failed(now, launcher.EngineFailedf("the engine ended while it was awake"))
	}
	d.wasAwake = m.State == launcher.Awake
}

// failed notes a failure. A full disk is none of the model's: no model is held back for it.
func (d *demand) failed(now time.Time, cause error) {
	d.failures++
	if launcher.CodeOf(cause) == launcherapi.CodeStorage {
		d.failures = min(d.failures, heldBackAfter-1)
	}
	d.cause = cause
	d.notBefore = now.Add(heldBackFor)
	if d.failures < heldBackAfter {
		d.notBefore = now.Add(shortestBackOff << (d.failures - 1))
	}
}

// failure returns the last failure as an error.
func (d *demand) failure(model string, now time.Time) *NotBroughtInError {
	e := &NotBroughtInError{Model: model, Err: d.cause, Retry: d.notBefore.Sub(now)}
	if d.failures >= heldBackAfter {
		e.HeldBack = d.failures
	}
	return e
}

// isHeldBack reports whether requests for the model are refused, as it fails again and again.
func (d *demand) isHeldBack(now time.Time) bool {
	return d.failures >= heldBackAfter && d.notBefore.After(now)
}

// ask fills in which requests wait for a model.
func (d *demand) ask(m *Model) {
	m.Waiting = len(d.waiting)
	if m.Waiting > 0 {
		m.WaitingSince = d.waiting[0].since
	}
	if d.awake {
		return
	}
	held := min(d.answered, m.Held) // were let through just before it fell asleep
	m.Waiting += held
	if held > 0 && (m.WaitingSince.IsZero() || m.Since.Before(m.WaitingSince)) {
		m.WaitingSince = m.Since
	}
}

// Forgive forgets the failures of a model, since what it is started with has changed: it is tried
// again at once.
func (s *Scheduler) Forgive(model string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.models[model]; d != nil {
		d.failures, d.cause, d.conflicts, d.notBefore = 0, nil, 0, time.Time{}
	}
	s.Kick()
}
