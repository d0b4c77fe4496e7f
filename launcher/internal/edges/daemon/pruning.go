package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	pruneEvery = 10 * time.Minute
	pruneEnd   = time.Second
)

// keepPruning prunes now and then, and keeps the logs of running engines within their limit,
// until stop is called. A disk that stalls holds it up, and nothing else; stop waits for it
// for at most pruneEnd.
func (d *Daemon) keepPruning() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { d.logs.Bound(ctx, d.sup.LogsInUse) })
	both.Go(func() {
		tick := time.NewTicker(pruneEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			d.prune()
			select {
			case <-tick.C:
			case <-d.logs.TooMany():
			case <-ctx.Done():
			}
		}
	})
	ended := make(chan struct{})
	go func() {
		both.Wait()
		close(ended)
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(pruneEnd):
			d.log.Warn("old logs are still being looked for: the disk of the state folder does not answer")
		}
	}
}

func (d *Daemon) prune() {
	d.keepMark()
	if err := d.logs.Prune(d.sup.LogsInUse); err != nil {
		d.log.Warn("cannot remove old logs", "error", err)
	}
	d.pruneCompiled()
}
