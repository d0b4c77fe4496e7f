package supervisor

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file is what the supervisor does for swaps. A swap moves instances by
// the same verbs as everybody else; here it gets hold of them.

// Intent is what a swap has decided to do, from one picture of the world.
type Intent struct {
	In    string   // id of the instance to come in; empty: swap out only
	New   bool     // in does not exist yet
	Draft *Draft   // of a new one
	Out   []string // ids of the instances that are awake on the GPUs and leave
	Stop  bool     // they end rather than sleep
	Level int      // of their sleep
	Evict []string // sleepers to stop first
	Want  *ledger.Want
}

// Decide is a swap's decision: given who is there and the ledger's picture, it
// answers what to do, or why not. It must not call the supervisor.
type Decide func(world ledger.World, instances []launcherapi.Instance) (Intent, error)

// Enlist lets a swap decide and, in the same breath, claims everything that the
// decision needs: the instances that it will move or evict, room for the one
// that comes in, and the id, the ports and the place of a new one. gpus are those
// that the swap has its turn on: theirs alone is the memory that the ledger's
// picture tells of. On error nothing has changed. [Supervisor.Dismiss] gives
// everything back.
func (s *Supervisor) Enlist(swapID string, gpus []string, decide Decide) (Intent, error) {
	intent, err := s.decide(swapID, gpus, decide, func(intent Intent) { s.claim(swapID, intent) })
	if err != nil || intent.Draft == nil {
		return intent, err
	}
	if err := s.claimPorts(swapID, intent.Draft); err != nil {
		s.Dismiss(swapID)
		s.refused(err)
		return Intent{}, err
	}
	return intent, nil
}

// Consider is Enlist without its effects. The ports of a new one are opened for
// a moment: only so is it known whether they can be.
func (s *Supervisor) Consider(swapID string, gpus []string, decide Decide) (Intent, error) {
	intent, err := s.decide(swapID, gpus, decide, func(Intent) {})
	if err != nil || intent.Draft == nil {
		return intent, err
	}
	opened, err := s.openPorts(intent.Draft)
	if err != nil {
		s.refused(err)
		return Intent{}, err
	}
	s.drop(intent.In, opened)
	return intent, nil
}

func (s *Supervisor) decide(swapID string, gpus []string, decide Decide, then func(Intent)) (Intent, error) {
	memory := s.lockWithMemory(gpus)
	defer s.mu.Unlock()
	if s.closing {
		return Intent{}, launcher.Unavailablef("the launcher is closing")
	}
	views := make([]launcherapi.Instance, 0, len(s.instances))
	for _, i := range s.sorted() {
		views = append(views, i.view())
	}
	intent, err := decide(s.world(memory), views)
	if err == nil {
		err = s.claimable(swapID, intent)
	}
	if err != nil {
		s.refused(err)
		return Intent{}, err
	}
	then(intent)
	return intent, nil
}

// MissingBytes is the device memory that a sleeper needs beyond what it holds, by
// GPU.
func (s *Supervisor) MissingBytes(id string) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]uint64{}
	i, ok := s.instances[id]
	if !ok {
		return out
	}
	for uuid, bytes := range i.entry(nil).Want("").Bytes {
		out[uuid] = bytes - min(bytes, i.residue[uuid])
	}
	return out
}

// KnownGPUs refuses UUIDs that no GPU of this node has; where is the field
// that named them.
func (s *Supervisor) KnownGPUs(where string, uuids []string) error {
	_, err := s.devices(where, uuids)
	return err
}

// Neighbours lists every GPU of the instances that are on any of those GPUs.
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

// Dismiss gives back everything that a swap has claimed: its instances,
// its room, and the ports of an instance that it did not make. Gates that the
// swap held shut open.
func (s *Supervisor) Dismiss(swapID string) { s.endClaim(swapID, s.leaveInstances) }

// BreakOff is Dismiss for a swap that the end of the launcher broke off: its
// instances stay claimed and their gates held, until the next launcher has finished
// or undone it.
func (s *Supervisor) BreakOff(swapID string) { s.endClaim(swapID, func(string) {}) }

func (s *Supervisor) endClaim(swapID string, leave func(swapID string)) {
	s.mu.Lock()
	unused := s.takeClaimed(swapID)
	id := ""
	if c, ok := s.claims[swapID]; ok {
		id = c.newID
	}
	delete(s.claims, swapID)
	leave(swapID)
	s.mu.Unlock()
	s.drop(id, unused)
}

// leaveInstances ends a swap's claim on every instance. The lock is held.
func (s *Supervisor) leaveInstances(swapID string) {
	for _, i := range s.instances {
		if i.swapID != swapID {
			continue
		}
		weighed := i.victim // when it fell asleep, which was before this swap
		i.swapID, i.victim = "", false
		if i.holdGate {
			i.holdGate = false
			s.setGate(i)
		}
		if op := i.op; i.state == launcher.Sleeping && !weighed {
			s.spawn(func() { s.weigh(i, op) })
		}
		s.write(i)
		i.notify()
	}
}

// Unreserve gives back the room that a swap has reserved: whoever it was for
// is counted itself from now on.
func (s *Supervisor) Unreserve(swapID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.claims[swapID]; ok {
		c.room = nil
	}
}

// AwaitDeleted waits, after something that a swap asked of one that leaves came
// to nothing with why, until that is gone, if somebody has deleted it: that is
// as good as asleep. Otherwise it returns why.
func (s *Supervisor) AwaitDeleted(ctx context.Context, id string, why error) error {
	s.mu.Lock()
	i, ok := s.instances[id]
	deleted := !ok || i.deleting
	s.mu.Unlock()
	if !deleted {
		return why
	}
	if !ok {
		return nil
	}
	_, err := s.awaitForgotten(ctx, i)
	return err
}

// Cut says how many answers in flight the last operation of an instance cut.
func (s *Supervisor) Cut(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.instances[id]; ok && i.op != nil {
		return i.op.cut
	}
	return 0
}

// Canary gives what asks an instance's engine for one token.
func (s *Supervisor) Canary(id string) (ask func(context.Context) error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.instances[id]
	if !ok {
		return nil, launcher.NotFound(id)
	}
	model := i.facts.Model
	if len(i.facts.ServedNames) > 0 {
		model = i.facts.ServedNames[0]
	}
	eng, base, key, forgotten := i.engine, i.base(), i.apiKey, i.keyForgotten
	return func(ctx context.Context) error {
		err := eng.Canary(ctx, base, model, key)
		if status, ok := errors.AsType[*engine.StatusError](err); forgotten && ok && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden) {
			s.log.Warn("the canary could not be asked: the launcher was started anew and does not know the key of the instance; its API server answers", "instance", id, "error", err)
			return nil
		}
		return err
	}, nil
}

// HoldBudgets stops sleepers that are over budget after a start: the budgets may
// have become smaller. It is for when everything is recovered, and returns at
// once.
func (s *Supervisor) HoldBudgets() { s.spawn(s.enforce) }

// enforce stops sleepers over budget, sparing the one that fell asleep last.
func (s *Supervisor) enforce() {
	if b := s.opts.Budget; b.MaxSleepersPerGPU == 0 && b.MaxSleeperBytesPerGPU == 0 && b.MaxHostSleeperBytes == 0 {
		return
	}
	memory := s.meter.Read(s.everyGPU())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	for _, id := range ledger.Enforce(s.world(memory), s.lastAsleep()) {
		i := s.instances[id]
		i.deleting = true
		err := s.happen(i, launcher.EventStopAsked, func() {
			i.reason = "evicted: the budgets of sleepers are full, and it was the least recently used"
		})
		if err != nil {
			s.log.Error("cannot evict a sleeper", "instance", id, "error", err)
		}
	}
}

// lastAsleep is the sleeper that fell asleep last; empty when there is none.
// The lock is held.
func (s *Supervisor) lastAsleep() string {
	var last *instance
	for _, i := range s.instances {
		if i.state == launcher.Sleeping && (last == nil || cmp.Or(i.since.Compare(last.since), cmp.Compare(i.revision, last.revision)) > 0) {
			last = i
		}
	}
	if last == nil {
		return ""
	}
	return last.facts.ID
}

// refused counts a refusal.
func (s *Supervisor) refused(err error) {
	bound := ""
	if e, ok := errors.AsType[*launcher.Error](err); ok && e.Fit != nil {
		bound = e.Fit.Bound
	}
	s.opts.Observer.Refused(launcher.CodeOf(err), bound)
}
