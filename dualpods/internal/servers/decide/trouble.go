package decide

import (
	"strings"
	"time"
)

// Trouble is that of a call to a requester program or a launcher that is made again and again:
// each time it failed, or was answered and changed nothing.
type Trouble struct {
	Count int
	Why   string
	Until time.Time // when it is made again
}

// TellTrouble is from which time on a call in trouble is told.
const TellTrouble = 3

// inVain reports whether a call was made in vain, and is not to be made again yet.
func (c *Common) inVain(do Action) bool { return c.Now.Before(c.Troubles[do].Until) }

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

// Telling is what a requester was told last.
type Telling struct {
	Reason Reason
	Times  int // for that reason, each time in other words
	Turns  int // how often the reason was another one
	At     time.Time
}

// Freely is how often a requester may be told something for another reason at once, until it has
// been told nothing for long. On its way to serving there are about a dozen reasons to wait, and
// two that take turns are no news.
const Freely = 20

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
