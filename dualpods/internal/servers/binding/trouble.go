package binding

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// callTrouble is the Trouble of a call, as it is kept between passes.
type callTrouble struct {
	decide.Trouble
	process string    // of the requester program that it is with
	renewed time.Time // when another process was seen last
}

// renewal is how often a new process of a requester program begins anew: one that
// calls itself something else with each answer is no new one.
const renewal = 10 * time.Second

// nothingChanged is what is wrong with a call that succeeded.
const nothingChanged = "it answered that it did, and nothing has changed"

// count notes that a call was made, to that process of a requester program or,
// where there is none, to a launcher. Whoever sees that it had its effect forgets
// that.
func (c *calls) count(key, process string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.troubles[key]
	t := callTrouble{Trouble: decide.Trouble{Count: before.Count + 1, Why: nothingChanged}, process: process, renewed: before.renewed}
	if err != nil {
		t.Why = err.Error()
	}
	t.Until = time.Now().Add(decide.PauseAfter(outcomePause, t.Count))
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
func (c *calls) trouble(key string) decide.Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.troubles[key].Trouble
}

// troubleWith is that of a call to a process of a requester program: none, where
// the process is new.
func (c *calls) troubleWith(key, process string, now time.Time) decide.Trouble {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.troubles[key]
	if ok && t.process != process && now.Sub(t.renewed) >= renewal {
		t = callTrouble{process: process, renewed: now}
		c.troubles[key] = t
	}
	return t.Trouble
}

// forgetTroubles forgets calls that have not been made for long.
func (c *calls) forgetTroubles(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.troubles, func(_ string, t callTrouble) bool {
		return now.Sub(t.Until) > decide.Settled && now.Sub(t.renewed) > decide.Settled
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
var requesterCalls = []decide.Action{decide.Bind, decide.Unbind, decide.BecomeReady, decide.BecomeUnready, decide.Hold, decide.EndHold}

func troubleKey(do decide.Action, uid types.UID) string { return string(do) + "/" + string(uid) }

// observeTroubles adds the calls that are in trouble, and forgets those that had
// their effect.
func observeTroubles(o *decide.Observation, n *nodeWork, l *launcherPod, id string) {
	o.Troubles = map[decide.Action]decide.Trouble{}
	if l != nil && o.Record != nil {
		o.Troubles[decide.Sleep], o.Troubles[decide.DeleteInstance] = n.calls.instanceTroubles(l, id, o.State())
	}
	if o.SPI == nil {
		return
	}
	awake := o.Awake()
	done := awake != nil && !awake.LauncherUnknown() && awake.IsReady() && awake.ForwardsToIt()
	for _, do := range requesterCalls {
		key := troubleKey(do, o.Requester.UID)
		if done || hadItsEffect(o, do) {
			n.calls.hadEffect(key)
		}
		o.Troubles[do] = n.calls.troubleWith(key, o.SPI.Proxy.Instance, o.Now)
	}
}

// hadItsEffect reports whether a call to the requester program is seen to have had its effect.
func hadItsEffect(o *decide.Observation, do decide.Action) bool {
	switch do {
	case decide.BecomeUnready:
		return !o.IsReady()
	case decide.Unbind:
		return !o.ForwardsTraffic()
	case decide.EndHold:
		return o.Holding() == ""
	case decide.Hold:
		return o.Record != nil && o.Holding() == o.Record.SwapKey()
	default:
		return false
	}
}

// instanceTroubles are those of the calls that put an instance to rest.
func (c *calls) instanceTroubles(l *launcherPod, id string, state launcher.State) (sleep, remove decide.Trouble) {
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

// toldNow notes that a requester was told something.
func (n *nodeWork) toldNow(uid types.UID, reason decide.Reason, now time.Time) {
	t := n.told[uid]
	if now.Sub(t.At) > decide.Settled {
		t = decide.Telling{}
	}
	if t.Reason != reason {
		t.Times = 0
		t.Turns++
	}
	t.Reason, t.At = reason, now
	t.Times++
	n.told[uid] = t
}
