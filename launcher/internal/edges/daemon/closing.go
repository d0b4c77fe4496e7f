package daemon

import (
	"context"
	"errors"
	"time"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

// openTime is enough to open everything and to adopt the engines.
const openTime = 30 * time.Second

// LastTime limits a launcher that only stops the engines of an earlier one, see Options.Last.
func LastTime(cfg config.Config) time.Duration {
	return openTime + shutdownTime + stopTime(cfg) + closeTime
}

// stopTime limits how long the launcher waits for its engines to stop.
func stopTime(cfg config.Config) time.Duration {
	return cfg.DrainTimeout + cfg.StopGrace + cfg.MemoryTimeout
}

// Close ends the launcher: it takes no new calls, ends the swaps, stops the engines
// or leaves them running, and closes everything that New has opened. A second call
// does nothing.
func (d *Daemon) Close() error {
	if d.undo == nil {
		return nil
	}
	d.closing.Store(true)
	d.log.Info("launcher is closing", "stop_engines", d.opts.StopsEngines())
	if d.keeper != nil {
		d.keeper.End()
	}
	if d.door != nil {
		d.door.Refuse()
	}
	errs := []error{d.endCalls()}
	d.feed.Close()
	ending, stop := context.WithTimeout(context.Background(), stopTime(d.opts.Config))
	defer stop()
	errs = append(errs, d.sup.Close(ending, d.opts.StopsEngines()), d.closeFrontDoor(), d.giveBack())
	return errors.Join(errs...)
}

// endCalls ends the swaps that run, and then the calls: those that wait for a swap
// are answered with its outcome.
func (d *Daemon) endCalls() error {
	swapsOver := make(chan struct{})
	go func() {
		defer close(swapsOver)
		ctx, cancel := context.WithTimeout(context.Background(), swapsTime)
		defer cancel()
		d.swaps.Close(ctx)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	err := d.server.Shutdown(ctx)
	<-swapsOver
	return err
}

// closeFrontDoor closes the front door, whose requests have ended with the gates.
func (d *Daemon) closeFrontDoor() error {
	if d.door == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), doorGrace)
	defer cancel()
	return d.door.Close(ctx)
}
