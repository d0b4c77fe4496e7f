// Package frontdoor serves all models of a machine at one address. A request names its model;
// the front door holds it until the model is awake there, which the scheduler brings about, and
// hands it to the gate of the model's instance.
package frontdoor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/scheduler"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Options of a FrontDoor.
type Options struct {
	Listener  net.Listener // which the FrontDoor closes
	Instances Instances
	Swaps     Swaps
	Handlers  Handlers
	Offers    *Offers            // the models of the catalogue
	Profile   string             // that was chosen
	Records   supervisor.Records // keeps it
	Feed      *eventlog.Log
	Clients   *connlimit.Limit
	Access    Access // nil: everybody who reaches the address may call

	Paths              engine.Paths  // those of all engines
	MaxWaiting         int           // requests that wait for one model
	Hold               time.Duration // how long each may wait for a model that sleeps
	Start              time.Duration // how long each may wait for a model that has to be started
	Turn, MinResidency time.Duration
	Observer           Observer
	Logger             *slog.Logger
}

// Access says who may call.
type Access interface {
	// Allow returns nil, or an error of code unauthorized or unavailable.
	Allow(r *http.Request) error
}

// FrontDoor serves until Close.
type FrontDoor struct {
	opts   Options
	fleet  *fleet
	filter *gateway.Filter
	sched  *scheduler.Scheduler
	server *gateway.Server

	entering sync.Mutex // held from the choice of a model to its ticket
	choosing sync.Mutex
	memory   *inference.Memory // for the bodies of requests
	mu       sync.Mutex
	profile  string

	cards *cards

	stop  context.CancelFunc
	tasks sync.WaitGroup // they follow the events until stop
}

// New returns a front door that does not serve yet.
func New(o Options) *FrontDoor {
	f := &FrontDoor{opts: o, fleet: newFleet(o), filter: gateway.NewFilter(inferenceAlone(o.Paths)), memory: inference.NewMemory(mostHeldBytes), cards: newCards()}
	f.sched = scheduler.New(scheduler.Options{Fleet: f.fleet, MaxWaiting: o.MaxWaiting, Turn: o.Turn, MinResidency: o.MinResidency, Logger: o.Logger})
	if err := f.checkProfile(o.Profile); err == nil {
		f.profile = o.Profile
	} else {
		o.Logger.Warn("the profile that was chosen is gone", "error", err)
	}
	return f
}

// inferenceAlone returns paths without those that only tell of one engine.
func inferenceAlone(p engine.Paths) engine.Paths {
	return engine.Paths{Inference: p.Inference, Refused: slices.Concat(p.Refused, p.Status)}
}

// Serve begins to serve. The caller calls Refuse and Close.
func (f *FrontDoor) Serve() {
	f.sched.Run()
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.tasks.Go(func() { f.follow(ctx) })
	f.cards.lookAgain()
	f.tasks.Go(func() { f.learn(ctx) })
	f.server = gateway.Serve(f.opts.Listener, f, gateway.ServerOptions{Clients: f.opts.Clients, Logger: f.opts.Logger})
}

// Addr returns the address that it serves at.
func (f *FrontDoor) Addr() string { return f.opts.Listener.Addr().String() }

// Refuse refuses the requests that wait, and those that come. It waits for what the front door
// has begun; swaps go on.
func (f *FrontDoor) Refuse() { f.sched.Close() }

// Close ends the front door after Refuse. It waits for the requests that are being answered until
// ctx ends.
func (f *FrontDoor) Close(ctx context.Context) error {
	cut, err := f.server.Close(ctx)
	f.stop()
	f.tasks.Wait()
	if cut > 0 {
		err = errors.Join(err, fmt.Errorf("cut %d requests at the front door", cut))
	}
	return err
}

// follow tells the scheduler and the cards of the changes of instances.
func (f *FrontDoor) follow(ctx context.Context) {
	for since := f.opts.Feed.Revision(); ; {
		events, err := f.opts.Feed.Next(ctx, since)
		switch {
		case ctx.Err() != nil || launcher.CodeOf(err) == launcherapi.CodeUnavailable:
			return
		case err != nil: // it has fallen behind
			since = f.opts.Feed.Revision()
		default:
			since = events[len(events)-1].Object.Revision
		}
		f.sched.Kick()
		f.cards.lookAgain()
	}
}
