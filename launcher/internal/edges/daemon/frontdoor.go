package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/edges/frontdoor"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// This file opens the front door.

// openFrontDoor opens the address of the front door. If that is the default and is taken, the
// launcher goes without a front door.
func (d *Daemon) openFrontDoor() error {
	if d.opts.FrontDoor == "" || d.opts.Last {
		return nil
	}
	listener, err := net.Listen("tcp", d.opts.FrontDoor) //nolint:noctx // a bind does not wait
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && !d.opts.FrontDoorAsked:
		d.log.Warn("there is no front door, since another process listens at its address; choose another by --front-door, or turn it off by --front-door \"\"", "address", d.opts.FrontDoor)
		return nil
	case err != nil:
		return fmt.Errorf("cannot listen for the front door: %w; choose another address by --front-door, or turn it off by --front-door \"\"", err)
	}
	d.doorListener = listener
	d.later(func() error { return ignoreClosed(listener.Close()) })
	if d.opts.FrontDoorTokenFile == "" {
		return nil
	}
	d.doorToken, err = d.openToken("--front-door-token-file", d.opts.FrontDoorTokenFile)
	return err
}

// doorAddress returns the address of the front door, for the log.
func (d *Daemon) doorAddress() string {
	if d.doorListener == nil {
		return "none"
	}
	return d.doorListener.Addr().String()
}

// doorPort returns the port of the front door; 0: there is none.
func (d *Daemon) doorPort() int {
	if d.doorListener == nil {
		return 0
	}
	return d.doorListener.Addr().(*net.TCPAddr).Port
}

// assembleFrontDoor makes the front door, once its address is open. It serves later.
func (d *Daemon) assembleFrontDoor(profile string, records *statedir.Records) error {
	offers, err := d.readOffers()
	if err != nil {
		return err
	}
	if d.doorListener == nil {
		if models := offers.Len(); models > 0 {
			d.log.Warn("nothing serves the models of the configuration, since there is no front door; choose a free address for it by --front-door, or leave the models out", "models", models, "config", d.opts.File)
		}
		return nil
	}
	o := frontdoor.Options{
		Listener: d.doorListener, Instances: d.sup, Swaps: swapper{d.swaps}, Handlers: d.gates.handler, Offers: offers, Feed: d.feed, Clients: d.gates.clients,
		Profile: profile, Records: records,
		Paths: d.allPaths(), MaxWaiting: d.opts.MaxHeldRequests, Hold: d.opts.HoldTimeout, Start: d.opts.StartTimeout, Turn: d.opts.FrontDoorTurn, MinResidency: d.opts.Budgets.MinResidency.D(), Observer: d.metrics, Logger: d.log,
	}
	if d.doorToken != nil {
		o.Access = d.doorToken
	}
	d.door = frontdoor.New(o)
	d.metrics.WatchFrontDoor(d.door.Waiting)
	return nil
}

// allPaths returns the paths of all engines.
func (d *Daemon) allPaths() (all engine.Paths) {
	for _, e := range d.engines {
		p := e.Paths()
		all.Status, all.Inference, all.Refused = append(all.Status, p.Status...), append(all.Inference, p.Inference...), append(all.Refused, p.Refused...)
	}
	return all
}

// openGate is a gate whose handler the front door uses.
type openGate struct {
	*gateway.Proxy
	forget func()
}

func (g openGate) Close(ctx context.Context) error {
	g.forget()
	return g.Proxy.Close(ctx)
}

// register keeps the handler of an instance's gate until the gate is closed.
func (g *gates) register(id string, p *gateway.Proxy) supervisor.Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[id] = p
	return openGate{p, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.open[id] == p {
			delete(g.open, id)
		}
	}}
}

// handler returns the handler of an instance's public port; nil: it has none.
func (g *gates) handler(id string) http.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.open[id]; p != nil {
		return p
	}
	return nil
}

// doorGrace is how long the end of the launcher waits for clients of the front door, after the
// answers in flight have ended.
const doorGrace = time.Second
