package binding

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// calls are the calls to launchers and requesters that take longer than a pass:
// each is made by a goroutine of its own, once at a time for each key. What
// became of a swap is kept until its record asks for another one.
type calls struct {
	ctx    context.Context //nolint:containedctx // the controller's life: calls outlive the pass that began them
	notify func()
	mu     sync.Mutex
	all    map[string]*outcome
	// troubles are the calls that are made again and again.
	troubles map[string]callTrouble
	// written are the swaps whose attempts this process has written into a record.
	written map[string]bool
	running sync.WaitGroup
}

// outcome is a call that is under way or over.
type outcome struct {
	hangUp   context.CancelFunc
	over     bool
	err      error
	revision uint64 // of the launcher, when the call was over
	evicted  []string
	swap     string // id of the swap of a rank, once it is known
	phase    string // of that swap, the one that began last
}

// outcomePause is how long a call that failed, or whose effect the launcher's
// stream has not told yet, is taken to be under way still.
const outcomePause = 500 * time.Millisecond

// untold is the revision of an effect that the launcher's stream has not told,
// and whose revision nobody has told either.
const untold = math.MaxUint64

// errNoAnswer is of a call whose connection broke: the launcher goes on with
// what was asked of it, or has never heard of it. A swap is asked for again then,
// by the same key.
var errNoAnswer = errors.New("the launcher did not answer")

// begin makes a call, unless it is under way, its outcome is kept, or the
// controller is ending.
func (c *calls) begin(key string, keep bool, do func(context.Context) (revision uint64, err error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.all[key]; c.ctx.Err() != nil || last != nil && (keep || !last.over || last.err != nil) {
		return
	}
	ctx, hangUp := context.WithCancel(c.ctx)
	o := &outcome{hangUp: hangUp}
	c.all[key] = o
	c.running.Go(func() {
		revision, err := do(ctx)
		hangUp()
		c.mu.Lock()
		o.over, o.err, o.revision = true, err, revision
		c.mu.Unlock()
		c.notify()
		if keep && !errors.Is(err, errNoAnswer) {
			return
		}
		select {
		case <-time.After(outcomePause):
		case <-c.ctx.Done():
		}
		c.forget(key, o)
		c.notify()
	})
}

// hangUp ends the wait of a call that is under way: a request that is not sent yet
// never is. One that is sent comes to a launcher that knows that its swap was
// called off.
func (c *calls) hangUp(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[key]; o != nil {
		o.hangUp()
	}
}

// forget has a call made again that had that outcome. A swap that was called off
// before it came to the launcher, and of whose end nobody told, may wait there:
// it is called off again.
func (c *calls) forget(key string, o *outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[key] != o {
		return
	}
	delete(c.all, key)
	if off := c.all[callOffOf(key)]; off != nil && off.over {
		delete(c.all, callOffOf(key))
	}
}

// underWay says whether a call is being made, has just failed, or had an effect
// that is not among what is known of the launcher's instances.
func (c *calls) underWay(key string, known uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[key]
	return o != nil && (!o.over || o.err != nil || o.revision > known)
}

// attempt is what became of a swap, as far as what is known of the launcher's
// instances has it already.
func (c *calls) attempt(key string, known uint64) decide.Attempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.all[key]
	if o == nil {
		return decide.Attempt{}
	}
	a := decide.Attempt{Asked: true, Phase: o.phase, Over: o.over && o.revision <= known && !errors.Is(o.err, errNoAnswer)}
	if a.Over && o.err != nil {
		a.Failure, a.Code, a.Invalid, a.NoRoom, a.Evicted = o.err.Error(), launcher.CodeOf(o.err), isInvalid(o.err), noRoom(o.err), o.evicted
	}
	return a
}

// ofInput are the fields of a swap that have the input of a requester. The launcher's checks of other fields depend on
// how it was started, so they may have another result after its next start.
var ofInput = map[string]bool{"args": true, "options": true, "gpu_uuids": true}

// isInvalid reports whether a launcher cannot use the input of a requester. An input is not invalid because the launcher
// does not have the model yet.
func isInvalid(err error) bool {
	e, ok := errors.AsType[*launcher.Error](err)
	if !ok || e.Code != launcherapi.CodeInvalid || e.FailureCause != "" {
		return false
	}
	field := strings.TrimPrefix(strings.TrimPrefix(e.Location, "body."), "in.")
	if end := strings.IndexAny(field, ".["); end >= 0 {
		field = field[:end]
	}
	return ofInput[field]
}

// moved notes how far the swap of a rank is.
func (c *calls) moved(key string, p launcherapi.SwapProgress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[key]; o != nil {
		o.swap, o.phase = p.SwapID, p.Phase
	}
}

// swapOf returns how far the swap of a rank is.
func (c *calls) swapOf(key string) (s dualpods.RankSwap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[key]; o != nil && !o.over {
		s.ID, s.Phase = o.swap, o.phase
	}
	return s
}

// evict notes who is to make room for the next attempt after that swap.
func (c *calls) evict(key string, neighbours []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[key]; o != nil {
		o.evicted = neighbours
	}
}

// writes notes that this process has written the attempt of a swap into a record:
// what the launcher answers is an answer of now.
func (c *calls) writes(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written[key] = true
}

func (c *calls) wrote(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written[key]
}

// keep forgets the outcomes of that kind but for those keys.
func (c *calls) keep(kind string, keys map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, o := range c.all {
		if o.over && strings.HasPrefix(key, kind) && !keys[key] {
			delete(c.all, key)
		}
	}
	maps.DeleteFunc(c.written, func(key string, _ bool) bool { return strings.HasPrefix(key, kind) && !keys[key] })
}

// none says that no call is under way, and no outcome is kept.
func (c *calls) none() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) == 0
}
