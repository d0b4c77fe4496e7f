package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file is what a swap owns from its admission to its end: the id, the
// ports and the place of the instance that it will make, the room for whoever
// comes in, and its victims. Nobody else can take any of them meanwhile
// (spec/decisions/0010).

// claim is what one swap owns, beside the instances that it moves.
type claim struct {
	newID string       // of the instance that it will make; empty: none
	port  int          // that was asked for it; 0: any
	ports ports        // opened for it, until it is made
	room  *ledger.Want // kept for the instance that comes in; nil: none, or that is counted itself by now
}

// ports are those of one instance.
type ports struct {
	gate    Gate // nil: there are none
	private Reservation
}

// has says whether a port is one of them.
func (p ports) has(port int) bool {
	return p.gate != nil && (p.gate.Port() == port || p.private.Port() == port)
}

// close gives the ports back. It may take as long as ctx lets it.
func (p ports) close(ctx context.Context) error {
	var err error
	if p.gate != nil {
		err = p.gate.Close(ctx)
	}
	if p.private != nil {
		err = errors.Join(err, p.private.Close())
	}
	return err
}

// unusedLimit bounds how long clients may hold on to a port that was opened for
// an instance which was not made.
const unusedLimit = time.Second

// drop gives back the ports of an instance that was not made.
func (s *Supervisor) drop(id string, p ports) {
	ctx, stop := context.WithTimeout(s.ctx, unusedLimit)
	defer stop()
	if err := p.close(ctx); err != nil {
		s.log.Warn("cannot give back the ports of an instance that was not made", "instance", id, "error", err)
	}
}

// takePorts takes an instance's ports from it. The lock is held.
func (i *instance) takePorts() ports {
	taken := ports{gate: i.gate, private: i.private}
	i.gate, i.private = nil, nil
	return taken
}

// openPorts opens the public port of a draft, shut, and keeps one for its engine.
func (s *Supervisor) openPorts(d *Draft) (ports, error) {
	private, err := s.opts.Gates.Reserve()
	if err != nil {
		return ports{}, fmt.Errorf("cannot reserve a port for the engine: %w", err)
	}
	gate, err := s.opts.Gates.Listen(GateOptions{
		InstanceID: d.ID, Supervisor: s, Host: d.plan.PublicHost, Port: d.plan.PublicPort, TargetPort: private.Port(),
	})
	if err != nil {
		return ports{}, errors.Join(err, private.Close())
	}
	return ports{gate: gate, private: private}, nil
}

// claimable refuses what an intent needs and another swap has claimed, or
// another instance has. The lock is held.
//
//	needed                       by whom it is held            effect
//	in, out or a victim          another swap, as anything     conflict
//	the new one's id             an instance, another swap     exists
//	the new one's public port    an instance, another swap     port_taken
//
// A swap that wants the victim of another to come in is refused rather than
// kept waiting: mostly there is nothing left to wait for.
func (s *Supervisor) claimable(swapID string, intent Intent) error {
	for _, id := range intent.parties() {
		if i, ok := s.instances[id]; ok && i.swapID != "" && i.swapID != swapID {
			return i.claimedError()
		}
	}
	if intent.Draft == nil {
		return nil
	}
	if err := s.idFree(intent.Draft.ID, swapID); err != nil {
		return err
	}
	return s.portFree(intent.Draft.plan.PublicPort, swapID)
}

// parties are the instances that an intent names.
func (intent Intent) parties() []string {
	all := append(append([]string(nil), intent.Out...), intent.Evict...)
	if intent.In != "" {
		all = append(all, intent.In)
	}
	return all
}

// claimedError says that the instance belongs to a swap.
func (i *instance) claimedError() error {
	if i.victim {
		return launcher.Conflictf("swap %s has claimed instance %s and is going to evict it: try again when the swap is over, or delete the instance", i.swapID, i.facts.ID)
	}
	return launcher.Conflictf("swap %s is moving instance %s: wait until the swap is over", i.swapID, i.facts.ID)
}

// claim marks the parties of a swap, and notes what else is the swap's until
// Dismiss. The lock is held.
func (s *Supervisor) claim(swapID string, intent Intent) {
	c := &claim{room: intent.Want}
	if intent.Draft != nil {
		c.newID, c.port = intent.Draft.ID, intent.Draft.plan.PublicPort
	}
	s.claims[swapID] = c
	for _, id := range intent.parties() {
		if i, ok := s.instances[id]; ok {
			i.swapID = swapID
			s.write(i)
			i.notify()
		}
	}
	for _, id := range intent.Evict {
		s.instances[id].victim = true
	}
}

// claimPorts opens the ports of the instance that a swap will make.
func (s *Supervisor) claimPorts(swapID string, d *Draft) error {
	opened, err := s.openPorts(d)
	if err != nil {
		return err
	}
	opened.gate.Shut("a swap is making room for the instance")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[swapID].ports = opened
	return nil
}

// takeClaimed gives the ports that a swap has claimed to the instance that it
// makes; none where it has not claimed any. The lock is held.
func (s *Supervisor) takeClaimed(swapID string) ports {
	c, ok := s.claims[swapID]
	if !ok {
		return ports{}
	}
	taken := c.ports
	c.ports = ports{}
	return taken
}

// Reclaim claims again, for a swap of an earlier life of the launcher, the instances
// that it was moving, which may be written without its mark, and the id of one that
// it may have been about to make; "" is none. An instance of that id of which nothing
// was written is one that the swap has made: nobody else could have the id. What
// another swap has claimed is left alone. [Supervisor.Dismiss] gives everything back.
func (s *Supervisor) Reclaim(swapID, newID string, moved []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[swapID] = &claim{newID: newID}
	if i, ok := s.instances[newID]; ok && i.found {
		i.facts.MadeBy = swapID
	}
	for _, id := range moved {
		if i, ok := s.instances[id]; ok && i.swapID == "" {
			i.swapID = swapID
			s.write(i)
			i.notify()
		}
	}
}

// idFree refuses the id of an instance, and one that another swap has claimed.
// The lock is held.
func (s *Supervisor) idFree(id, swapID string) error {
	if _, taken := s.instances[id]; taken {
		return launcher.Existsf("Instance with ID %s already exists", id)
	}
	for holder, c := range s.claims {
		if c.newID == id && holder != swapID {
			return launcher.Existsf("swap %s is about to make instance %s: choose another id", holder, id)
		}
	}
	return nil
}

// portFree refuses a public port that another instance has, or that is claimed
// by a swap other than the one named. The lock is held.
func (s *Supervisor) portFree(port int, swapID string) error {
	if port == 0 {
		return nil
	}
	for _, i := range s.instances {
		if i.released {
			continue
		}
		if i.facts.PublicPort == port {
			return launcher.PortTakenf("port %d is the public port of instance %s: choose another, or leave --port out", port, i.facts.ID)
		}
		if i.facts.EnginePort == port {
			return launcher.PortTakenf("port %d is where the engine of instance %s listens behind its public port: choose another, or leave --port out", port, i.facts.ID)
		}
	}
	for holder, c := range s.claims {
		if holder != swapID && (c.port == port || c.ports.has(port)) {
			return launcher.PortTakenf("swap %s has claimed port %d for instance %s: choose another, or leave --port out", holder, port, c.newID)
		}
	}
	return nil
}

// reservations are the room that swaps have claimed. The lock is held.
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

// hasRoom says whether a swap has kept room for an instance since its admission.
func (s *Supervisor) hasRoom(id, swapID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.claims[swapID]
	return ok && c.room != nil && c.room.ID == id
}

// wanted is the room that a draft needs: a place under max_instances is kept
// for that of a swap since its admission. The lock is held.
func (s *Supervisor) wanted(d *Draft) ledger.Want {
	want := d.Want
	if c, ok := s.claims[d.create.SwapID]; ok && c.room != nil {
		want.New = want.New && !c.room.New
	}
	return want
}

// Evict ends a sleeper that a swap has claimed as its victim, and waits until
// it is gone and its device memory is back.
//
//	the instance                    effect
//	asleep, and the swap's victim   stopped and forgotten: evicted
//	gone, or being stopped          waits until it holds nothing: somebody else was quicker
//	ended by itself                 waits until it holds nothing, and leaves it listed
//	any other                       error, code conflict: it is left alone
func (s *Supervisor) Evict(ctx context.Context, id, swapID string) (evicted bool, err error) {
	i, err := s.stop(id, func(i *instance) error {
		if i.state != launcher.Sleeping || !i.victim || i.swapID != swapID {
			return launcher.Conflictf("instance %s is %s and cannot be evicted: only a sleeper that the swap has claimed can", id, i.state)
		}
		return nil
	})
	if err == nil {
		_, err = s.awaitForgotten(ctx, i)
		return err == nil, err
	}
	view, gone := s.Get(id)
	if state := launcher.State(view.State); gone == nil && state != launcher.Stopping && !state.Ended() {
		return false, err
	}
	if _, err = s.AwaitRest(ctx, id); launcher.CodeOf(err) == launcherapi.CodeNotFound {
		err = nil
	}
	return false, err
}

// StopOut is Delete of an instance that a swap has put out. Another one of that
// id, made since somebody has deleted that, is left alone: code not_found.
func (s *Supervisor) StopOut(ctx context.Context, id, swapID string) (launcherapi.Instance, error) {
	i, err := s.stop(id, func(i *instance) error {
		if i.swapID != swapID {
			return launcher.NotFound(id)
		}
		return nil
	})
	if err != nil {
		return launcherapi.Instance{}, err
	}
	return s.awaitForgotten(ctx, i)
}

// Remove is Delete of an instance that a swap has made. One of that id that it
// did not make is left alone: code not_found.
func (s *Supervisor) Remove(ctx context.Context, id, swapID string) error {
	i, err := s.stop(id, func(i *instance) error {
		if i.facts.MadeBy != swapID {
			return launcher.NotFound(id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.awaitForgotten(ctx, i)
	return err
}
