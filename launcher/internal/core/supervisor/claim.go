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

// Claim is all that a swap owns from its admission to its end: the instances that the
// swap moves or evicts, the room for the one that comes in, and the id, the ports and
// the place of a new one. Meanwhile no other call can take any of them
// (spec/decisions/0010). Its methods are the phases of a swap (phases.go) and their
// undo (undoing.go).
//
// A claim finds its instances once, when it is made. An id that a method is given names
// one of these. The claim never touches an instance of the same id that a client has
// created since.
type Claim struct {
	s     *Supervisor
	plan  launcher.Plan
	draft *Draft // of a new instance; nil: the swap creates none, or an earlier launcher may have created it
	owns  bool   // false: the swap has nothing to do or to keep, or is a dry run

	// Guarded by the supervisor's lock.
	in      *instance            // the one that comes in; nil: there is none, or it is not created yet
	members map[string]*instance // the instances that leave and the victims, by id
	stopped map[string]bool      // ids of the instances that the claim has stopped after they left
	ports   ports                // open for a new instance, until the instance takes them over
	// compares: the engine that Wake wakes is compared with its fingerprint before it is awake.
	compares bool
	room     *launcher.Room // reserved for the instance that comes in; nil: not needed, or the ledger already counts the instance itself
}

// ErrDeleted reports that a client has deleted an instance that leaves. For the swap,
// that instance has left.
var ErrDeleted = errors.New("it was deleted")

// ErrOutdated reports that the ended instance which a swap is to start again has been
// forgotten or replaced since the request was read.
var ErrOutdated = errors.New("the instance was deleted or replaced while the swap waited")

// ClaimRequest is what a swap asks to claim.
type ClaimRequest struct {
	Plan   launcher.Plan // as the request fills it in, with the GPUs of the swap's turn
	GPUs   []string      // UUIDs of the GPUs on which only the instance that comes in is to be awake
	Draft  *Draft        // of a new instance; nil: the swap creates none
	DryRun bool          // decide, and own nothing
	Keep   bool          // own the instance that comes in although there is nothing to do
}

// Claim decides what a swap has to do and, under the same lock, claims all that the
// swap needs. If there is nothing to do and nothing to keep, or in a dry run, the claim owns
// nothing. Even then Claim opens the ports of a new instance for a moment, to find out whether it can.
// An error leaves everything unchanged. Claim returns the errors of [ledger.Decide], an
// [ErrOutdated], and
//
//	needed                                  held by                     code
//	in, out or a victim                     another swap                conflict
//	out                                     a worker that still loads   conflict
//	id of the new instance                  an instance, another swap   exists
//	public port of the new instance         an instance, another swap   port_taken
//	records of the instances that move      a disk that is full         storage
//
// A swap that wants to bring in the victim of another swap is refused and does not
// wait, since the victim is mostly gone afterwards. [Claim.Release] gives everything
// back.
func (s *Supervisor) Claim(ask ClaimRequest) (*Claim, error) {
	return s.claim(ask, func(w ledger.World) (launcher.Plan, error) {
		return ledger.Decide(w, ask.Plan, ask.GPUs, time.Now())
	})
}

func (s *Supervisor) claim(ask ClaimRequest, decide func(ledger.World) (launcher.Plan, error)) (*Claim, error) {
	c, err := s.decide(ask, decide)
	if err == nil {
		if err = c.saveAndReserve(); err != nil || !c.owns {
			c.Release()
		}
	}
	if err != nil {
		s.countRefusal(err)
		return nil, err
	}
	return c, nil
}

// decide makes the claim of a swap and marks the instances that the claim owns.
func (s *Supervisor) decide(ask ClaimRequest, decide func(ledger.World) (launcher.Plan, error)) (*Claim, error) {
	memory := s.lockWithMemory(ask.Plan.GPUs)
	defer s.mu.Unlock()
	if s.closing {
		return nil, launcher.Unavailablef("the launcher is closing")
	}
	if s.isOutdated(ask.Draft) {
		return nil, ErrOutdated
	}
	plan, err := decide(s.world(memory))
	if err != nil {
		return nil, err
	}
	c := &Claim{s: s, plan: plan, draft: ask.Draft, owns: !ask.DryRun && (ask.Keep || !plan.NothingToDo()), room: plan.Room, members: map[string]*instance{}, stopped: map[string]bool{}}
	if err := c.findInstances(func(i *instance) error {
		if i.swapID != "" {
			return i.claimedError()
		}
		if slices.Contains(plan.Out, i.facts.ID) {
			return i.unconfirmedError()
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if c.draft != nil {
		if err := s.checkIDFree(plan.In, c); err != nil {
			return nil, err
		}
		if err := s.checkPortFree(c.draft.plan.PublicPort, c); err != nil {
			return nil, err
		}
	}
	if c.owns {
		s.claims[plan.SwapID] = c
		c.markInstances()
		for _, id := range plan.Evict {
			c.members[id].victim = true
		}
	}
	return c, nil
}

// findInstances finds the instances of the plan. If may returns an error for one of
// them, findInstances returns that error. The lock is held.
func (c *Claim) findInstances(may func(*instance) error) error {
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

// all returns the instances of the claim that are still listed. The lock is held.
func (c *Claim) all() []*instance {
	var all []*instance
	for _, id := range append(slices.Concat(c.plan.Out, c.plan.Evict), c.plan.In) {
		if i := c.instanceOf(id); i != nil && c.s.isListed(i) {
			all = append(all, i)
		}
	}
	return all
}

// instanceOf returns the claim's instance with that id, or nil. The lock is held.
func (c *Claim) instanceOf(id string) *instance {
	if id == c.plan.In {
		return c.in
	}
	return c.members[id]
}

// markInstances sets and saves the swap's id on each instance of the claim. The lock is
// held.
func (c *Claim) markInstances() {
	for _, i := range c.all() {
		if i.swapID == "" {
			i.swapID = c.plan.SwapID
			c.s.write(i)
			i.notify()
		}
	}
}

// Publish tells watchers which swap has claimed the instances. A swap that is refused,
// called off or out of time before it is recorded never gets here.
func (c *Claim) Publish() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, i := range c.all() {
		c.s.publishSwapID(i)
	}
}

// claimedError returns the refusal for an instance that a swap has claimed.
func (i *instance) claimedError() error {
	if i.victim {
		return launcher.Conflictf("swap %s is about to evict instance %s; try again after the swap, or delete the instance", i.swapID, i.facts.ID)
	}
	return launcher.Conflictf("swap %s is putting instance %s to sleep or waking it; wait until the swap is over", i.swapID, i.facts.ID)
}

// saveAndReserve makes sure that the marks of the claim are on disk. It also takes the
// lease and opens the ports of the instance that the swap will create.
func (c *Claim) saveAndReserve() error {
	if c.owns {
		if err := c.s.WritePending(); err != nil {
			return launcher.Storagef("cannot record the instances that swap %s claims: %w", c.plan.SwapID, err)
		}
	}
	if c.draft == nil {
		return nil
	}
	if c.owns {
		if err := c.s.lease(c.draft); err != nil {
			return err
		}
		if err := c.s.takeLeasedPorts(c.draft); err != nil {
			return err
		}
	}
	if c.draft.plan.IsWorker() {
		return nil
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

// hasPort reports whether the claim holds the port for a new instance. The lock is held.
func (c *Claim) hasPort(port int) bool {
	return c.draft != nil && c.draft.plan.PublicPort == port || c.ports.has(port)
}

// Plan returns the plan that was decided.
func (c *Claim) Plan() launcher.Plan { return c.plan }

// Show shows the instance that comes in, nil when there is none, and those that
// leave: as they are now, or as they ended where the claim has stopped them.
func (c *Claim) Show() (in *launcherapi.Instance, out []launcherapi.Instance) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.in != nil && c.s.isListed(c.in) {
		view := c.show(c.in)
		in = &view
	}
	out = []launcherapi.Instance{}
	for _, id := range c.plan.Out {
		if i := c.members[id]; i != nil && (c.s.isListed(i) || c.stopped[id]) {
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

// Release gives back the rest of the claim: its instances, its room, and the ports of
// an instance that was not created. Gates that the claim held shut open.
func (c *Claim) Release() {
	c.end(func() {
		for _, i := range c.all() {
			c.releaseInstance(i)
		}
	})
}

// BreakOff is Release for a swap that the end of the launcher broke off. Its instances
// stay claimed and their gates stay shut until the next launcher has finished or undone
// the swap.
func (c *Claim) BreakOff() { c.end(func() {}) }

func (c *Claim) end(leave func()) {
	c.s.mu.Lock()
	made := c.in != nil
	c.s.mu.Unlock()
	if c.owns && c.draft != nil && !made {
		c.s.unlease(c.draft.ID, nil, c.draft)
	}
	if c.owns && c.draft != nil && !made && len(c.draft.ports) > 0 {
		c.s.opts.Leases.End(c.draft.ID)
	}
	c.s.mu.Lock()
	unused := c.ports
	c.ports = ports{}
	if c.s.claims[c.plan.SwapID] == c {
		delete(c.s.claims, c.plan.SwapID)
	}
	leave()
	c.s.mu.Unlock()
	c.s.settle()
	c.s.closeUnusedPorts(c.plan.In, unused)
}

// releaseInstance ends the claim on one instance. The lock is held.
func (c *Claim) releaseInstance(i *instance) {
	if i.swapID != c.plan.SwapID {
		return
	}
	alreadyMeasured := i.victim // a victim fell asleep and was measured before this swap
	i.swapID, i.victim = "", false
	if i.gateHeldShut {
		i.gateHeldShut = false
		c.s.setGate(i)
	}
	if op := i.op; i.state == launcher.Sleeping && !alreadyMeasured && !i.restarts() {
		c.s.spawn(func() { c.s.measureHostBytes(i, op) })
	}
	c.s.publishSwapID(i)
}

// publishSwapID shows in lists and by an event which swap has claimed the instance, or
// that none has. The lock is held.
func (s *Supervisor) publishSwapID(i *instance) {
	if i.publishedSwapID != i.swapID {
		i.publishedSwapID = i.swapID
		s.publish(i, launcherapi.EventUpdated)
		return
	}
	s.write(i)
	i.notify()
}

// reservations returns the room that swaps have claimed. The lock is held.
func (s *Supervisor) reservations() []launcher.Room {
	var out []launcher.Room
	for _, c := range s.claims {
		if c.room != nil {
			out = append(out, *c.room)
		}
	}
	slices.SortFunc(out, func(a, b launcher.Room) int { return strings.Compare(a.SwapID, b.SwapID) })
	return out
}

// Neighbours returns every GPU of the instances that use any of those GPUs.
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

// KnownGPUs refuses UUIDs that no GPU of this node has. where is the field of the
// request that names them.
func (s *Supervisor) KnownGPUs(where string, uuids []string) error {
	_, err := s.devices(where, uuids)
	return err
}
