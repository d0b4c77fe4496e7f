package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has what is special about the ranks of a server over several launchers, and about
// leased ports.
//
// A rank other than the entry is a worker: it has no HTTP, so nobody can ask it anything. It
// counts as awake while its process lives. The client tells sleep and wake to the launcher of
// each rank; the engine of the entry passes them on to the workers, and their launchers see that
// by the device memory.

// unknownGroup is the group of a rank whose record was lost.
const unknownGroup = "unknown"

// isWorker reports whether the instance serves no HTTP.
func (i *instance) isWorker() bool { return i.facts.isWorker() }

func (f *facts) isWorker() bool { return f.Spec.Rank != nil && f.Spec.Rank.Index > 0 }

// rankOf reads the rank of a create call; nil: it has none. ports are leased for the instance.
func (s *Supervisor) rankOf(c launcher.CreateRequest, ports []int) (*rank.Rank, error) {
	if c.Spec.Rank == nil {
		return nil, nil //nolint:nilnil // most instances have no rank
	}
	r, err := rank.Read(*c.Spec.Rank)
	if wrong, ok := errors.AsType[*rank.Error](err); ok {
		return nil, launcher.Invalidf("body.rank."+wrong.Field, "%w", err)
	}
	if s.opts.RankAddress == "" {
		return nil, launcher.Invalidf("body.rank", "this launcher has no address for ranks, since its instance_host is %s; start it with --rank-address", s.opts.InstanceHost)
	}
	r.Address = s.opts.RankAddress
	if r.Interface, err = s.opts.Interface(r.Address); err != nil {
		return nil, launcher.Invalidf("body.rank", "ranks cannot listen at this launcher's rank_address: %w", err)
	}
	if !r.IsWorker() && !slices.Contains(ports, r.Port) {
		return nil, launcher.Invalidf("body.rank.entry", "port %d is not leased to instance %s, which is the entry; lease ports by PUT /v2/port-leases/%s, and name one of them", r.Port, c.ID, c.ID)
	}
	return &r, nil
}

// putLate puts leased ports and what the rank is into the arguments and variables of a request.
func putLate(c launcher.CreateRequest, ports []int, r *rank.Rank) (launcherapi.InstanceSpec, error) {
	spec, field, err := rank.PutLateIn(c.Spec, rank.LateValues(ports, r))
	missing, isMissing := errors.AsType[*rank.MissingPortError](err)
	switch {
	case !isMissing:
		return spec, err
	case len(ports) == 0:
		return spec, launcher.Invalidf("body."+field, "%w for instance %s; first lease ports by PUT /v2/port-leases/ID with a count of at least %d, then create the instance with that ID", err, c.ID, missing.Number+1)
	}
	return spec, launcher.Invalidf("body."+field, "%w: the port lease of %s has %d; give it back by DELETE, and lease at least %d", err, c.ID, len(ports), missing.Number+1)
}

// takeLeasedPorts gives a draft's leased ports to its instance, until endLeasedPorts.
func (s *Supervisor) takeLeasedPorts(d *Draft) error {
	if len(d.ports) == 0 {
		return nil
	}
	return s.opts.Leases.Take(d.ID, d.ports)
}

// endLeasedPorts gives the leased ports of an instance back.
func (s *Supervisor) endLeasedPorts(i *instance) {
	if len(i.facts.Ports) > 0 {
		s.opts.Leases.End(i.facts.ID)
	}
}

// awaitStarted waits until the engine is healthy. A worker counts as awake at once: only the
// entry tells whether the server answers.
func (s *Supervisor) awaitStarted(i *instance, op *operation) {
	if !i.isWorker() {
		s.awaitReady(i, op)
		return
	}
	s.endOperation(i, op, launcher.EventReady, nil)
}

// measureWorker measures the device memory of a worker whose server answers, as the client says
// by letting the swap end.
func (c *Claim) measureWorker() {
	s := c.s
	s.mu.Lock()
	i := c.in
	s.mu.Unlock()
	if i == nil || !i.isWorker() {
		return
	}
	held := s.heldBytes(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state == launcher.Awake && len(held) > 0 {
		i.awakeBytes = held
	}
}

// seeAsleep waits until a worker has given back its device memory, since the entry was put to
// sleep. The drain of the entry comes before that.
func (s *Supervisor) seeAsleep(i *instance, op *operation) {
	began := time.Now()
	awake, bounds := s.sleepBounds(i)
	seen := s.see(op, func() bool {
		now := s.sample(i)
		return !slices.ContainsFunc(i.gpus(), func(uuid string) bool {
			_, readable := now.used[uuid]
			return !readable || now.held[uuid] > bounds[uuid]
		})
	})
	residue := s.heldBytes(i)
	if !seen {
		s.endOperation(i, op, launcher.EventSleepRefused, func() {
			op.err = fmt.Errorf("did not fall asleep within %s: it still holds its device memory, so the entry of its server does not sleep: %w", op.limit, context.DeadlineExceeded)
			i.reason, i.cause, i.awakeBytes = op.err.Error(), "sleep_failed", awake
		})
		return
	}
	s.endOperation(i, op, launcher.EventSlept, func() {
		i.addTiming("sleep", time.Since(began))
		i.awakeBytes, i.residue = awake, residue
	})
}

// sleepBounds returns the device memory that a worker holds while it is awake, where that is
// known, and how much it may hold of each GPU when it sleeps. The entry may have been put to
// sleep a moment before, so that a worker that was never measured may sleep already.
func (s *Supervisor) sleepBounds(i *instance) (awake, bounds map[string]uint64) {
	held := s.heldBytes(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	awake, bounds = map[string]uint64{}, map[string]uint64{}
	for _, uuid := range i.gpus() {
		measured := i.awakeBytes[uuid]
		bounds[uuid] = max(measured, held[uuid]) / 20 * 19
		if measured == 0 {
			bounds[uuid] = max(bounds[uuid], i.facts.Expected[uuid]/2)
		}
		if most := max(measured, held[uuid]); most > bounds[uuid] {
			awake[uuid] = most
		}
	}
	return awake, bounds
}

// seeAwake waits until a worker holds its device memory again, since the entry was woken.
func (s *Supervisor) seeAwake(i *instance, op *operation) {
	began := time.Now()
	s.mu.Lock()
	awake := memorySample{held: i.awakeBytes}
	s.mu.Unlock()
	var last error
	seen := s.see(op, func() bool {
		last = s.sample(i).lessThan(awake)
		return last == nil
	})
	held := s.heldBytes(i)
	if !seen {
		s.endOperation(i, op, launcher.EventWakeRefused, func() {
			op.err = fmt.Errorf("did not wake within %s: %w; the entry of its server was not woken", op.limit, errors.Join(last, context.DeadlineExceeded))
			i.reason, i.cause = op.err.Error(), "wake_failed"
		})
		return
	}
	s.endOperation(i, op, launcher.EventWoke, func() {
		i.addTiming("wake", time.Since(began))
		i.hostBytes, i.sleepUnknown = 0, false
		if len(held) > 0 {
			i.awakeBytes = held
		}
	})
}

// see waits until seen says true, for at most the time of the operation.
func (s *Supervisor) see(op *operation, seen func() bool) bool {
	ctx, stop := s.boundAnswer(op)
	defer stop()
	for {
		if s.meter.PollUntil(ctx, seen) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}
