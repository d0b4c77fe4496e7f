package supervisor

import (
	"errors"
	"net"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file has what is special about the ranks of a server over several launchers, and about
// leased ports.
//
// A rank other than the entry is a worker: it has no HTTP, so nobody can ask it anything. It
// counts as awake while its process lives, and is confirmed once it has loaded. The client tells
// sleep and wake to the launcher of each rank. The engine of the entry passes them on to the
// workers, and their launchers see that by the device memory (worker.go).

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
	switch isIP := net.ParseIP(r.Host) != nil; {
	case isIP && isLoopback(r.Address) && !isLoopback(r.Host):
		return nil, launcher.Invalidf("body.rank", "the entry is at %s, but the ranks of this launcher listen at %s, which other machines cannot reach; start the launcher with --rank-address", r.Host, r.Address)
	case isLoopback(r.Host) && !isLoopback(r.Address):
		return nil, launcher.Invalidf("body.rank.entry", "the entry is at %s, which other machines cannot reach, but the ranks of this launcher listen at %s; name the entry by the rank_address of its launcher", r.Host, r.Address)
	}
	if r.Interface, err = s.opts.Interface(r.Address); err != nil {
		return nil, launcher.Invalidf("body.rank", "ranks cannot listen at this launcher's rank_address: %w", err)
	}
	if !r.IsWorker() && !slices.Contains(ports, r.Port) {
		return nil, launcher.Invalidf("body.rank.entry", "port %d is not leased to instance %s, which is the entry; lease ports by PUT /v2/port-leases/%s, and name one of them", r.Port, c.ID, c.ID)
	}
	return &r, nil
}

// isLoopback reports whether a host is an address that only its own machine can reach.
func isLoopback(host string) bool { return net.ParseIP(host).IsLoopback() }

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
	s.confirmOnceLoaded(i)
}
