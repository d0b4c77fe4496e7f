package binding

import (
	"maps"
	"time"

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
