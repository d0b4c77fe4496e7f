package binding

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Trouble is that of a call to a requester program or a launcher that is made
// again and again: each time it failed, or was answered and changed nothing.
type Trouble struct {
	Count int
	Why   string
	Until time.Time // when it is made again

	process string    // of the requester program that it is with
	renewed time.Time // when another process was seen last
}

// renewal is how often a new process of a requester program begins anew: one that
// calls itself something else with each answer is no new one.
const renewal = 10 * time.Second

// A call in trouble is told from the third time on. A model that was not put to
// sleep that often is deleted.
const (
	tellTrouble  = 3
	enoughSleeps = 5
)

// nothingChanged is what is wrong with a call that succeeded.
const nothingChanged = "it answered that it did, and nothing has changed"

// count notes that a call was made, to that process of a requester program or,
// where there is none, to a launcher. Whoever sees that it had its effect forgets
// that.
func (c *calls) count(key, process string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.troubles[key]
	t := Trouble{Count: before.Count + 1, Why: nothingChanged, process: process, renewed: before.renewed}
	if err != nil {
		t.Why = err.Error()
	}
	t.Until = time.Now().Add(pauseAfter(outcomePause, t.Count))
	c.troubles[key] = t
}

// called notes a call that was made beside the passes.
func (c *Controller) called(n *nodeWork, key, process string, err error) {
	n.calls.count(key, process, err)
	if err != nil {
		c.log.Info("a call failed", "node", n.name, "call", key, "error", err.Error())
	}
}

// hadEffect forgets the calls of these keys.
func (c *calls) hadEffect(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		delete(c.troubles, key)
	}
}

// trouble is that of a key; the zero Trouble: there is none.
func (c *calls) trouble(key string) Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.troubles[key]
}

// troubleWith is that of a call to a process of a requester program: none, where
// the process is new.
func (c *calls) troubleWith(key, process string, now time.Time) Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.troubles[key]
	if ok && t.process != process && now.Sub(t.renewed) >= renewal {
		t = Trouble{process: process, renewed: now}
		c.troubles[key] = t
	}
	return t
}

// forgetTroubles forgets calls that have not been made for long.
func (c *calls) forgetTroubles(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.troubles, func(_ string, t Trouble) bool {
		return now.Sub(t.Until) > settled && now.Sub(t.renewed) > settled
	})
}

// refuses says that a launcher answered a call to one of its instances that it
// cannot do that; not, that something else has to end first.
func refuses(err error) bool {
	switch launcher.CodeOf(err) {
	case "", launcherapi.CodeConflict, launcherapi.CodeNotFound, launcherapi.CodeUnavailable, launcherapi.CodeTooMany:
		return false
	default:
		return true
	}
}

// requesterCalls are the calls to a process of a requester program.
var requesterCalls = []Action{Bind, Unbind, BecomeReady, BecomeUnready, Hold, EndHold}

func troubleKey(do Action, uid types.UID) string { return string(do) + "/" + string(uid) }

// observeTroubles adds the calls that are in trouble, and forgets those that had
// their effect.
func (o *Observation) observeTroubles(n *nodeWork, l *launcherPod, id string) {
	o.Troubles = map[Action]Trouble{}
	if l != nil && o.Record != nil {
		o.Troubles[Sleep], o.Troubles[DeleteInstance] = n.calls.instanceTroubles(l, id, o.state())
	}
	if o.SPI == nil {
		return
	}
	done := o.Record != nil && !o.goes() && o.in(launcher.Awake) && o.ready() && o.SPI.Proxy.ProxyConfig == o.proxy()
	for _, do := range requesterCalls {
		key := troubleKey(do, o.Requester.UID)
		if done || o.isDone(do) {
			n.calls.hadEffect(key)
		}
		o.Troubles[do] = n.calls.troubleWith(key, o.SPI.Proxy.Instance, o.Now)
	}
}

// isDone says that the requester program shows the effect of a call.
func (o *Observation) isDone(do Action) bool {
	switch do {
	case Unbind:
		return !o.carries()
	case BecomeUnready:
		return !o.ready()
	case Hold:
		return o.Record != nil && o.holding() == o.Record.SwapKey()
	case EndHold:
		return o.holding() == ""
	default: // a requester that is served shows that of the others
		return false
	}
}

// instanceTroubles are those of the calls that put an instance to rest.
func (c *calls) instanceTroubles(l *launcherPod, id string, state launcher.State) (sleep, remove Trouble) {
	switch state {
	case launcher.Awake, launcher.FallingAsleep, launcher.Waking: // an engine that does not sleep is awake again soon
	default:
		c.hadEffect(sleepKey(l, id))
	}
	if state == "" || state == launcher.Stopping {
		c.hadEffect(deleteKey(l, id))
	}
	return c.trouble(sleepKey(l, id)), c.trouble(deleteKey(l, id))
}

// inVain says that a call was made in vain, and that it is not to be made again yet.
func (o *Observation) inVain(do Action) bool { return o.Now.Before(o.Troubles[do].Until) }

// paused is what to do instead of a call that is in trouble, until it is made
// again: people are told when that lasts.
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
	if t.Count >= tellTrouble {
		pause.Do, pause.Reason, pause.Warn = Tell, reason, true
	}
	return pause
}

// telling is what a requester was told last.
type telling struct {
	reason Reason
	times  int // for that reason, each time in other words
	turns  int // how often the reason was another one
	at     time.Time
}

// freely is how often a requester may be told something for another reason at once,
// until it has been told nothing for long: on its way to serving there are about a
// dozen reasons to wait, and two that take turns are no news.
const freely = 20

// toldNow notes that a requester was told something.
func (n *nodeWork) toldNow(uid types.UID, reason Reason, now time.Time) {
	t := n.told[uid]
	if now.Sub(t.at) > settled {
		t = telling{}
	}
	if t.reason != reason {
		t.times = 0
		t.turns++
	}
	t.reason, t.at = reason, now
	t.times++
	n.told[uid] = t
}

// again is when a requester may be told something for that reason, in other words.
func (t telling) again(reason Reason) time.Time {
	var pause time.Duration
	if t.reason == reason && t.times > 0 {
		pause = pauseAfter(firstPause, t.times)
	}
	if t.turns > freely {
		pause = max(pause, pauseAfter(firstPause, t.turns-freely))
	}
	return t.at.Add(pause)
}

// once has nobody told what they were told already. Other words for the same
// reason are told later each time: what others say may never be the same twice.
func (o *Observation) once(step Step) Step {
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
