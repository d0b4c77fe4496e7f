package supervisor

import (
	"cmp"
	"errors"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
)

// HoldBudgets stops sleepers that are over budget after a start: the budgets may
// have become smaller. Call it when everything is recovered; it returns at once.
func (s *Supervisor) HoldBudgets() { s.spawn(s.enforce) }

// enforce evicts sleepers over budget, and spares the one that fell asleep last.
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

// refused counts a refusal. A swap that has to wait for its decision (for
// [ledger.MinResidencyError] and its like) is not refused.
func (s *Supervisor) refused(err error) {
	e, ok := errors.AsType[*launcher.Error](err)
	if !ok {
		return
	}
	bound := ""
	if e.Fit != nil {
		bound = e.Fit.Bound
	}
	s.opts.Observer.Refused(e.Code, bound)
}
