package supervisor

import (
	"cmp"
	"errors"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
)

// EnforceBudgets evicts sleepers that are over budget after a start: the budgets may
// have become smaller. Call it when everything is recovered; it returns at once.
func (s *Supervisor) EnforceBudgets() { s.spawn(s.enforceBudgets) }

// enforceBudgets evicts sleepers over budget, but never the one that fell asleep last.
func (s *Supervisor) enforceBudgets() {
	if b := s.opts.Budget; b.MaxSleepersPerGPU == 0 && b.MaxSleeperBytesPerGPU == 0 && b.MaxHostSleeperBytes == 0 {
		return
	}
	memory := s.meter.Read(s.everyGPU())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	for _, id := range ledger.Enforce(s.world(memory), s.newestSleeper()) {
		i := s.instances[id]
		i.deleting = true
		err := s.transition(i, launcher.EventStopAsked, func() {
			i.reason = "evicted: the sleep budget is full, and it was the least recently used sleeper"
		})
		if err != nil {
			s.log.Error("cannot evict a sleeping instance", "instance", id, "error", err)
		}
	}
}

// newestSleeper returns the id of the sleeper that fell asleep last, or "" if there is
// none. The lock is held.
func (s *Supervisor) newestSleeper() string {
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

// countRefusal counts a refusal. A swap that has to wait for its decision (a
// [ledger.MinResidencyError], for example) is not refused.
func (s *Supervisor) countRefusal(err error) {
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
