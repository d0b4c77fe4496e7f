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
}

// A call in trouble is told from the third time on. A model that was not put to
// sleep that often is deleted.
const (
	tellTrouble  = 3
	enoughSleeps = 5
)

// nothingChanged is what is wrong with a call that succeeded.
const nothingChanged = "it answered that it did, and nothing has changed"

// count notes that a call was made. Whoever sees that it had its effect forgets that.
func (c *calls) count(key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := Trouble{Count: c.troubles[key].Count + 1, Why: nothingChanged}
	if err != nil {
		t.Why = err.Error()
	}
	t.Until = time.Now().Add(pauseAfter(outcomePause, t.Count))
	c.troubles[key] = t
}

// called notes a call that was made beside the passes.
func (c *Controller) called(n *nodeWork, key string, err error) {
	n.calls.count(key, err)
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

// forgetTroubles forgets calls that have not been made for long.
func (c *calls) forgetTroubles(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.troubles, func(_ string, t Trouble) bool { return now.Sub(t.Until) > settled })
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
var requesterCalls = []Action{Bind, Unbind, BecomeReady, BecomeUnready}

func troubleKey(do Action, uid types.UID, process string) string {
	return string(do) + "/" + string(uid) + "/" + process
}

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
	done := o.Record != nil && o.in(launcher.Awake) && o.ready() && o.SPI.Proxy.ProxyConfig == o.proxy()
	for _, do := range requesterCalls {
		key := troubleKey(do, o.Requester.UID, o.SPI.Proxy.Instance)
		if done || do == BecomeUnready && !o.ready() {
			n.calls.hadEffect(key)
		}
		o.Troubles[do] = n.calls.trouble(key)
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
	at     time.Time
}

// toldNow notes that a requester was told something.
func (n *nodeWork) toldNow(uid types.UID, reason Reason, now time.Time) {
	last := n.told[uid]
	if last.reason != reason || now.Sub(last.at) > settled {
		last.times = 0
	}
	n.told[uid] = telling{reason: reason, times: last.times + 1, at: now}
}

// reword is when a requester may be told the same in other words.
func (t telling) reword() time.Time {
	if t.times == 0 {
		return time.Time{}
	}
	return t.at.Add(pauseAfter(firstPause, t.times))
}

// once has nobody told what they were told already. Other words for the same
// reason are told later each time: what others say may never be the same twice.
func (o *Observation) once(step Step) Step {
	if step.Do != Tell {
		return step
	}
	again := o.Told.reword().Sub(o.Now)
	switch {
	case !o.Requester.Exists || o.Requester.Told == step.Why:
		step.Do = Nothing
	case o.Told.reason == step.Reason && again > 0:
		step.Do = Nothing
		if step.After == 0 || again < step.After {
			step.After = again
		}
	}
	return step
}
