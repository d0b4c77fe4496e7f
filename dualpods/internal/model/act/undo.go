package act

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	serversdecide "hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// foreignWrite is a kind of write of others to a Deployment that the controller undoes.
type foreignWrite string

const (
	writeOfTemplate foreignWrite = "template"
	writeOfReplicas foreignWrite = "replicas"
)

// longest is the longest pause before such a write is undone. It is short for numbers of replicas, because a wrong number
// serves requests badly.
func (of foreignWrite) longest() time.Duration {
	if of == writeOfReplicas {
		return 30 * time.Second
	}
	return serversdecide.LongestPause
}

// undoneAtOnce is how many writes of others, one soon after the other, are undone without a pause. A program that writes
// again and again replaces Pods each time, and so does each undo.
const undoneAtOnce = 3

// undone is a kind of foreign write to the Deployment of an entry.
type undone struct {
	ofEntry

	what foreignWrite
}

// undos counts the undos of a kind of foreign write, each soon after the one before.
type undos struct {
	times int
	last  time.Time
}

// isOld reports whether the last undo was so long ago that the next one begins a new count.
func (u undos) isOld(what foreignWrite, now time.Time) bool {
	return now.Sub(u.last) > 2*what.longest()
}

// pause returns how long the next foreign write stays before it is undone; 0: it is undone at once.
func (u undos) pause(what foreignWrite) time.Duration {
	if u.times < undoneAtOnce {
		return 0
	}
	return min(serversdecide.PauseAfter(serversdecide.FirstPause, 1+u.times-undoneAtOnce), what.longest())
}

// undoPause returns how long from now a foreign write stays before it is undone; 0: it is undone at once.
func (c *Controller) undoPause(of ofEntry, what foreignWrite, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.undone[undone{of, what}]
	if u.isOld(what, now) {
		delete(c.undone, undone{of, what})
		return 0
	}
	return max(u.last.Add(u.pause(what)).Sub(now), 0)
}

// noteUndo notes that a foreign write was undone. It returns the pause before the next undo if that
// is the first pause, and else 0.
func (c *Controller) noteUndo(of ofEntry, what foreignWrite, now time.Time) (first time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.undone[undone{of, what}]
	if u.isOld(what, now) {
		u = undos{}
	}
	u.times, u.last = u.times+1, now
	c.undone[undone{of, what}] = u
	if u.times == undoneAtOnce {
		return u.pause(what)
	}
	return 0
}

// forgetUndos forgets the undos of a Model. The lock is held.
func (c *Controller) forgetUndos(model types.NamespacedName) {
	maps.DeleteFunc(c.undone, func(of undone, _ undos) bool { return of.model == model })
}
