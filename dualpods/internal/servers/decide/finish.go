package decide

import (
	"strings"
	"time"

	"hotseat.dev/hotseat/dualpods"
)

// finish returns a row's step, or the pause that is made instead, as people are to be told it.
func (s *seen) finish(o *Observation, step Step) Step {
	step = o.spaced(o.paused(step))
	step.Shorten()
	return s.againToEndHold(o, o.Once(step))
}

// Repeated counts the writes of one kind to a requester.
type Repeated struct {
	Times int
	Last  time.Time
}

// spaced replaces a write that was made many times by a pause. The first writes are made at once:
// edits of labels, and a model that is served again and again, need them.
func (o *Observation) spaced(step Step) Step {
	made := o.Repeats[step.Do]
	if made.Times <= Freely {
		return step
	}
	left := made.Last.Add(PauseAfter(FirstPause, made.Times-Freely)).Sub(o.Now)
	if left <= 0 {
		return step
	}
	return Step{Rule: step.Rule, Do: Retry, After: left, Why: "somebody reverts what the controller writes: " + step.Why}
}

// paused returns what to do instead of a call that is in trouble, until it is made again. People
// are told when that lasts.
func (o *Observation) paused(step Step) Step {
	if !o.inVain(step.Do) {
		return step
	}
	t := o.Troubles[step.Do]
	who, reason := "the requester program", RequesterRefuses
	if step.Do == Sleep || step.Do == DeleteInstance {
		who, reason = "launcher "+o.Launcher.Name, LauncherRefuses
	}
	pause := Step{Rule: step.Rule, Do: Retry, After: t.Until.Sub(o.Now), Why: strings.Join([]string{who, "does not", string(step.Do) + ":", t.Why}, " ")}
	if t.Count >= TellTrouble {
		pause.Do, pause.Reason, pause.Warn = Tell, reason, true
	}
	return pause
}

// Freely is how often a requester may be told something for another reason at once, until it has
// been told nothing for long. On its way to serving there are about a dozen reasons to wait, and
// two that take turns are no news.
const Freely = 20

// Telling is what a requester was told last.
type Telling struct {
	Reason Reason
	Times  int // for that reason, each time in other words
	Turns  int // how often the reason was another one
	At     time.Time
}

// again returns when a requester may be told something for that reason, in other words.
func (t Telling) again(reason Reason) time.Time {
	var pause time.Duration
	if t.Reason == reason && t.Times > 0 {
		pause = PauseAfter(FirstPause, t.Times)
	}
	if t.Turns > Freely {
		pause = max(pause, PauseAfter(FirstPause, t.Turns-Freely))
	}
	return t.At.Add(pause)
}

// Once has nobody told what they were told already. Other words for the same reason are told
// later each time: what others say may never be the same twice.
func (o *Observation) Once(step Step) Step {
	if step.Do != Tell {
		return step
	}
	again := o.Told.again(step.Reason).Sub(o.Now)
	switch {
	case !o.Requester.Exists || o.Requester.Told == step.Why:
		step.Do = Nothing
	case again > 0:
		step.Do = Nothing
		if step.After == 0 || again < step.After {
			step.After = again
		}
	}
	return step
}

// Shorten bounds what others have said: all the annotations of a Pod have room for 256 KiB, and
// the API server refuses a write that is too large each time.
func (s *Step) Shorten() {
	s.Why, s.Record.Failure, s.Failures.Why = dualpods.Truncate(s.Why, MaxNote), dualpods.Truncate(s.Record.Failure, MaxNote), dualpods.Truncate(s.Failures.Why, MaxNote)
	if c := s.Record.Change; c != nil {
		c.Failure = dualpods.Truncate(c.Failure, MaxNote)
	}
}

// againToEndHold adds to a step when the program is told again to end its hold.
func (s *seen) againToEndHold(o *Observation, step Step) Step {
	holds := s.unbinding != nil && s.unbinding.holdsForNobody() || s.staying != nil && s.staying.holdsForNobody()
	if holds && o.inVain(EndHold) {
		step.After = dualpods.Sooner(step.After, o.Troubles[EndHold].Until.Sub(o.Now))
	}
	return step
}
