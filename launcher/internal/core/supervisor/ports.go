package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file opens ports, and checks that ids and ports are free.

// ports are the two addresses of one instance: its public port, and where the engine
// listens.
type ports struct {
	gate    Gate // nil: there are none
	private Reservation
	socket  string // in place of private
}

// has reports whether port is one of them.
func (p ports) has(port int) bool {
	return p.gate != nil && p.gate.Port() == port || p.private != nil && p.private.Port() == port
}

// close closes the ports. The gate waits for its clients until ctx ends.
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

// unusedLimit bounds how long clients may delay the closing of a port whose instance was
// not created.
const unusedLimit = time.Second

// closeUnusedPorts closes the ports of an instance that was not created.
func (s *Supervisor) closeUnusedPorts(id string, p ports) {
	ctx, stop := context.WithTimeout(s.ctx, unusedLimit)
	defer stop()
	if err := p.close(ctx); err != nil {
		s.log.Warn("cannot release the ports of an instance that was not created", "instance", id, "error", err)
	}
}

// takePorts removes the ports from an instance and returns them. The lock is held.
func (i *instance) takePorts() ports {
	taken := ports{gate: i.gate, private: i.private}
	i.gate, i.private = nil, nil
	return taken
}

// openPorts opens the public port of a draft, and decides where the engine listens. It
// reserves a port for an engine that cannot listen on a socket.
func (s *Supervisor) openPorts(d *Draft) (ports, error) {
	socket, err := s.planSocket(d)
	if err != nil {
		return ports{}, err
	}
	opened := ports{socket: socket}
	opts := GateOptions{
		InstanceID: d.ID, Supervisor: s, Host: d.plan.PublicHost, Port: d.plan.PublicPort, TargetSocket: opened.socket, KeepAlive: d.plan.KeepAlive, Paths: d.engine.Paths(),
		Quiet: s.opts.Limits.Hang,
	}
	if opened.socket == "" {
		if opened.private, err = s.opts.Gates.Reserve(); err != nil {
			return ports{}, fmt.Errorf("cannot reserve a port for the engine: %w", err)
		}
		opts.TargetPort = opened.private.Port()
	}
	if opened.gate, err = s.opts.Gates.Listen(opts); err != nil {
		opened.gate = nil
		return ports{}, errors.Join(err, opened.close(s.ctx))
	}
	return opened, nil
}

// planSocket returns the socket at which the engine of a draft is to listen. If there can be
// none, it notes the reason for the instance's log. The error says why the engine may listen
// nowhere else.
func (s *Supervisor) planSocket(d *Draft) (string, error) {
	if s.opts.Sockets == nil {
		return "", nil
	}
	path, err := s.opts.Sockets.Plan(d.ID, d.plan)
	if _, refused := errors.AsType[*launcher.Error](err); refused {
		return "", err
	}
	if err != nil {
		d.plan.Notes = append(slices.Clip(d.plan.Notes), fmt.Sprintf("the engine listens on a port of loopback, where every local user reaches its developer endpoints (/sleep, /collective_rpc): %v", err))
		return "", nil
	}
	return path, nil
}

// checkIDFree refuses an id that an instance has, or that a claim other than own has
// reserved. A new instance replaces one that is over. own may be nil. The lock is held.
func (s *Supervisor) checkIDFree(id string, own *Claim) error {
	if i, taken := s.instances[id]; taken && !i.isOver() {
		return launcher.Existsf("Instance with ID %s already exists", id)
	}
	for holder, c := range s.claims {
		if c != own && c.plan.CreatesIn() && c.plan.In == id {
			return launcher.Existsf("swap %s is about to create instance %s; choose another id", holder, id)
		}
	}
	return nil
}

// checkPortFree refuses a public port that an instance has, or that a claim other than
// own has reserved. own may be nil. The lock is held.
func (s *Supervisor) checkPortFree(port int, own *Claim) error {
	if port == 0 {
		return nil
	}
	for _, i := range s.instances {
		if i.released {
			continue
		}
		if i.facts.PublicPort == port {
			return launcher.PortTakenf("port %d is the public port of instance %s; choose another, or leave out --port", port, i.facts.ID)
		}
		if i.facts.AskedPort == port {
			return launcher.PortTakenf("port %d is that of instance %s, which gets it back once no other process has it; choose another, or leave out --port", port, i.facts.ID)
		}
		if i.facts.EnginePort == port {
			return launcher.PortTakenf("the engine of instance %[2]s listens on port %[1]d, behind its public port; choose another, or leave out --port", port, i.facts.ID)
		}
	}
	for holder, c := range s.claims {
		if c != own && c.hasPort(port) {
			return launcher.PortTakenf("swap %s has claimed port %d for instance %s; choose another, or leave out --port", holder, port, c.plan.In)
		}
	}
	return nil
}

// reopen opens the ports of an adopted instance again. If another process has its public
// port, the instance gets another one until a later launcher finds the port free, and the
// error says so.
func (s *Supervisor) reopen(i *instance) error {
	if !i.facts.knowsEngine() {
		return nil
	}
	s.claimPort(i)
	opts := GateOptions{
		InstanceID: i.facts.ID, Supervisor: s, Host: i.facts.PublicHost,
		TargetPort: i.facts.EnginePort, TargetSocket: i.facts.EngineSocket, KeepAlive: i.facts.KeepAlive, Paths: i.engine.Paths(),
		Quiet: s.opts.Limits.Hang,
	}
	asked := cmp.Or(i.facts.AskedPort, i.facts.PublicPort)
	opts.Port = asked
	gate, taken := s.opts.Gates.Listen(opts)
	if taken == nil {
		i.gate, i.facts.PublicPort, i.facts.AskedPort = gate, gate.Port(), 0
		return nil
	}
	taken = fmt.Errorf("another process took its port %d while the launcher was down: %w", asked, taken)
	if opts.Port = i.facts.PublicPort; opts.Port == asked {
		opts.Port = 0
	}
	gate, err := s.opts.Gates.Listen(opts)
	if err != nil && opts.Port != 0 { // that one was taken, too
		opts.Port = 0
		gate, err = s.opts.Gates.Listen(opts)
	}
	if err != nil {
		return errors.Join(taken, err)
	}
	i.gate, i.facts.PublicPort, i.facts.AskedPort = gate, gate.Port(), asked
	return fmt.Errorf("%w; it has port %d until the launcher is restarted while port %d is free", taken, gate.Port(), asked)
}

// claimPort reserves the port of an adopted engine that listens on one.
func (s *Supervisor) claimPort(i *instance) {
	if i.facts.EngineSocket != "" {
		return
	}
	private, err := s.opts.Gates.Claim(i.facts.EnginePort)
	if err != nil {
		s.log.Warn("cannot reserve the port of an adopted engine", "instance", i.facts.ID, "error", err)
		return
	}
	i.private = private
}

// findSockets finds the sockets of engines that an earlier launcher started.
func (s *Supervisor) findSockets(all []SavedInstance) {
	if s.opts.Sockets == nil {
		return
	}
	for n := range all {
		if f := &all[n].Facts; f.EngineSocket != "" {
			f.EngineSocket = s.opts.Sockets.Now(f.ID, f.EngineSocket)
		}
	}
}
