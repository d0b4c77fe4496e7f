package supervisor

import (
	"errors"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Claim is all that a swap owns from its admission to its end: the instances that
// the swap moves or evicts, the room for the one that comes in, and the id, the
// ports and the place of a new one. Nobody else can take any of them meanwhile
// (spec/decisions/0010). Its methods are the phases of a swap (phases.go) and their
// undoing (undoing.go).
//
// A claim finds its instances once, when the claim is made. The id that a method is
// given names one of these: an instance of the same id that somebody else has made
// since is never touched.
type Claim struct {
	s     *Supervisor
	plan  ledger.Plan
	draft *Draft // of a new instance; nil: the swap makes none, or an earlier life of the launcher may have made it
	owns  bool   // false: the swap has nothing to do, or is a dry run

	// Guarded by the supervisor's lock.
	in      *instance            // the one that comes in; nil: the swap has none, or has not made it yet
	members map[string]*instance // the instances that leave and the victims, by id
	stopped map[string]bool      // ids of the instances that left and that the claim has stopped
	ports   ports                // opened for a new instance, which takes them over
	room    *ledger.Want         // reserved for the instance that comes in; nil: none is needed, or the ledger counts the instance itself by now
}

// ErrDeleted says that somebody has deleted an instance that leaves. For the swap
// that instance has left, as one that sleeps has.
var ErrDeleted = errors.New("somebody has deleted it")

// SwapAsk is what a swap asks to claim.
type SwapAsk struct {
	Plan   ledger.Plan // what the request says of it, with the GPUs that the swap has its turn on
	GPUs   []string    // UUIDs of the GPUs on which only the instance that comes in shall be awake
	Draft  *Draft      // of a new instance; nil: the one that comes in exists, or there is none
	DryRun bool        // decide, and own nothing
}

// Claim decides what a swap has to do and, under the same lock, claims all that the
// swap needs. Where there is nothing to do, and in a dry run, the claim owns
// nothing; even then the ports of a new instance are opened for a moment, to find
// out whether they can be. On error nothing has changed: see [ledger.Decide], and
// besides
//
//	needed                       by whom it is held            code
//	in, out or a victim          another swap, as anything     conflict
//	the new one's id             an instance, another swap     exists
//	the new one's public port    an instance, another swap     port_taken
//	what is moved is not written, and cannot be                storage
//
// A swap that wants to bring in the victim of another swap is refused rather than
// kept waiting: mostly the victim is gone afterwards. [Claim.Release] gives
// everything back.
func (s *Supervisor) Claim(ask SwapAsk) (*Claim, error) {
	return s.claim(ask, func(w ledger.World) (ledger.Plan, error) {
		return ledger.Decide(w, ask.Plan, ask.GPUs, time.Now())
	})
}

func (s *Supervisor) claim(ask SwapAsk, decide func(ledger.World) (ledger.Plan, error)) (*Claim, error) {
	c, err := s.decide(ask, decide)
	if err == nil {
		if err = c.secure(); err != nil || !c.owns {
			c.Release()
		} else {
			c.announce()
		}
	}
	if err != nil {
		s.refused(err)
		return nil, err
	}
	return c, nil
}

// decide makes the claim of a swap, and marks the instances that the claim owns, if
// any.
func (s *Supervisor) decide(ask SwapAsk, decide func(ledger.World) (ledger.Plan, error)) (*Claim, error) {
	memory := s.lockWithMemory(ask.Plan.GPUs)
	defer s.mu.Unlock()
	if s.closing {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	plan, err := decide(s.world(memory))
	if err != nil {
		return nil, err
	}
	c := &Claim{s: s, plan: plan, draft: ask.Draft, owns: !ask.DryRun && !plan.NothingToDo(), room: plan.Room, members: map[string]*instance{}, stopped: map[string]bool{}}
	if err := c.find(func(i *instance) error {
		if i.swapID != "" {
			return i.claimedError()
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if c.draft != nil {
		if err := s.idFree(plan.In, c); err != nil {
			return nil, err
		}
		if err := s.portFree(c.draft.plan.PublicPort, c); err != nil {
			return nil, err
		}
	}
	if c.owns {
		s.claims[plan.SwapID] = c
		c.mark()
		for _, id := range plan.Evict {
			c.members[id].victim = true
		}
	}
	return c, nil
}

// find finds the instances of the plan, unless may refuses one. The lock is held.
func (c *Claim) find(may func(*instance) error) error {
	for _, id := range c.plan.Parties() {
		i, ok := c.s.instances[id]
		if !ok {
			continue
		}
		if err := may(i); err != nil {
			return err
		}
		if id == c.plan.In {
			c.in = i
		} else {
			c.members[id] = i
		}
	}
	return nil
}

// all are the instances of the claim that are still listed. The lock is held.
func (c *Claim) all() []*instance {
	var all []*instance
	for _, id := range append(slices.Concat(c.plan.Out, c.plan.Evict), c.plan.In) {
		if i := c.handle(id); i != nil && c.s.lists(i) {
			all = append(all, i)
		}
	}
	return all
}

// handle is the instance of an id of the plan; nil: the claim has none. The lock is
// held.
func (c *Claim) handle(id string) *instance {
	if id == c.plan.In {
		return c.in
	}
	return c.members[id]
}

// mark notes with each instance of the claim the swap that owns the instance. The
// lock is held.
func (c *Claim) mark() {
	for _, i := range c.all() {
		if i.swapID == "" {
			i.swapID = c.plan.SwapID
			c.s.write(i)
			i.notify()
		}
	}
}

// announce tells of each instance of the claim which swap has it: a swap that is
// refused tells nothing.
func (c *Claim) announce() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, i := range c.all() {
		c.s.tellSwap(i)
	}
}

// claimedError says that the instance belongs to a swap.
func (i *instance) claimedError() error {
	if i.victim {
		return launcher.Conflictf("swap %s has claimed instance %s and is going to evict it: try again when the swap is over, or delete the instance", i.swapID, i.facts.ID)
	}
	return launcher.Conflictf("swap %s is moving instance %s: wait until the swap is over", i.swapID, i.facts.ID)
}

// secure makes sure that the marks of the claim are on disk, and takes the lease and
// opens the ports of the instance that the swap will make.
func (c *Claim) secure() error {
	if c.owns {
		if err := c.s.CatchUp(); err != nil {
			return launcher.Storagef("cannot write down what swap %s moves: %w", c.plan.SwapID, err)
		}
	}
	if c.draft == nil {
		return nil
	}
	if c.owns {
		if err := c.s.lease(c.draft); err != nil {
			return err
		}
	}
	opened, err := c.s.openPorts(c.draft)
	if err != nil {
		return err
	}
	opened.gate.Shut("a swap is making room for the instance")
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.ports = opened
	return nil
}

// hasPort says whether the claim holds a port for a new instance. The lock is held.
func (c *Claim) hasPort(port int) bool {
	return c.draft != nil && c.draft.plan.PublicPort == port || c.ports.has(port)
}

// Reclaim claims again what a swap of an earlier life of the launcher owned: the
// instances, whose records name the swap, and the id of a new one. An instance
// without a record, and whose id the plan names, is the swap's too: nobody else
// could have the id. An instance that another swap has claimed is left alone.
func (s *Supervisor) Reclaim(plan ledger.Plan) *Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Claim{s: s, plan: plan, owns: true, members: map[string]*instance{}, stopped: map[string]bool{}}
	s.claims[plan.SwapID] = c
	_ = c.find(func(*instance) error { return nil }) // nobody is refused
	if i, ok := s.instances[plan.In]; ok && plan.CreatesIn() {
		c.in = i
	}
	if c.in != nil && !c.owned(c.in) {
		c.in = nil
	}
	for id, i := range c.members {
		if !c.owned(i) {
			delete(c.members, id)
		}
	}
	c.mark()
	for _, i := range c.all() {
		s.tellSwap(i)
	}
	return c
}

// owned says whether an instance that was there when the launcher started is the
// claim's. The lock is held.
func (c *Claim) owned(i *instance) bool {
	made := c.plan.CreatesIn() && i.facts.ID == c.plan.In
	if made && i.found {
		i.facts.MadeBy = c.plan.SwapID
	}
	if made {
		return i.facts.MadeBy == c.plan.SwapID
	}
	return i.swapID == c.plan.SwapID || i.swapID == "" && i.found
}

// Plan is the plan that was decided.
func (c *Claim) Plan() ledger.Plan { return c.plan }

// Show shows the instance that comes in, nil when there is none, and those that
// leave: as they are now, or as they ended where the claim has stopped them.
func (c *Claim) Show() (in *launcherapi.Instance, out []launcherapi.Instance) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in != nil && c.s.lists(c.in) {
		view := c.show(c.in)
		in = &view
	}
	out = []launcherapi.Instance{}
	for _, id := range c.plan.Out {
		if i := c.members[id]; i != nil && (c.s.lists(i) || c.stopped[id]) {
			out = append(out, c.show(i))
		}
	}
	return in, out
}

// show shows an instance as it is when the claim is released, which comes before
// anybody reads the answer. The lock is held.
func (c *Claim) show(i *instance) launcherapi.Instance {
	view := i.view()
	view.SwapID = ""
	return view
}

// Release gives back all that is left of the claim: its instances, its room, and
// the ports of an instance that was not made. Gates that the claim held shut open.
func (c *Claim) Release() {
	c.end(func() {
		for _, i := range c.all() {
			c.leave(i)
		}
	})
}

// BreakOff is Release for a swap that the end of the launcher broke off: its
// instances stay claimed and their gates held, until the next launcher has finished
// or undone the swap.
func (c *Claim) BreakOff() { c.end(func() {}) }

func (c *Claim) end(leave func()) {
	c.s.mu.Lock()
	made := c.in != nil
	c.s.mu.Unlock()
	if c.owns && c.draft != nil && !made {
		c.s.unlease(c.draft.ID)
	}
	c.s.mu.Lock()
	unused := c.ports
	c.ports = ports{}
	if c.s.claims[c.plan.SwapID] == c {
		delete(c.s.claims, c.plan.SwapID)
	}
	leave()
	c.s.mu.Unlock()
	c.s.drop(c.plan.In, unused)
}

// leave ends the claim on one instance. The lock is held.
func (c *Claim) leave(i *instance) {
	if i.swapID != c.plan.SwapID {
		return
	}
	weighed := i.victim // a victim fell asleep, and was weighed, before this swap
	i.swapID, i.victim = "", false
	if i.holdGate {
		i.holdGate = false
		c.s.setGate(i)
	}
	if op := i.op; i.state == launcher.Sleeping && !weighed {
		c.s.spawn(func() { c.s.weigh(i, op) })
	}
	c.s.tellSwap(i)
}

// tellSwap shows which swap has the instance, or that none has any more, in lists and
// by an event. The lock is held.
func (s *Supervisor) tellSwap(i *instance) {
	if i.shownSwap != i.swapID {
		i.shownSwap = i.swapID
		s.publish(i, launcherapi.EventUpdated)
		return
	}
	s.write(i)
	i.notify()
}

// reservations are the rooms that swaps have claimed. The lock is held.
func (s *Supervisor) reservations() []ledger.Want {
	var out []ledger.Want
	for _, c := range s.claims {
		if c.room != nil {
			out = append(out, *c.room)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Want) int { return strings.Compare(a.SwapID, b.SwapID) })
	return out
}

// Neighbours lists every GPU of the instances that have any of those GPUs.
func (s *Supervisor) Neighbours(uuids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, i := range s.sorted() {
		if !i.released && slices.ContainsFunc(i.gpus(), func(g string) bool { return slices.Contains(uuids, g) }) {
			for _, g := range i.gpus() {
				if !slices.Contains(out, g) {
					out = append(out, g)
				}
			}
		}
	}
	return out
}

// KnownGPUs refuses UUIDs that no GPU of this node has; where is the field of the
// request that names them.
func (s *Supervisor) KnownGPUs(where string, uuids []string) error {
	_, err := s.devices(where, uuids)
	return err
}
