//go:build cluster

package e2e

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// asking are clients that ask an app through its Service, each time over a new
// connection, until stop, which returns the errors of the requests that were lost.
type asking struct {
	answered atomic.Int64
	stop     func() (lost []string)
}

// askPause is how long a client waits between two requests. So the clients of an app send
// some 80 requests a second and leave the processors to what is tested: without a pause they
// would take all of them.
const askPause = 50 * time.Millisecond

// askAll has clients ask the model of an app.
func (s *site) askAll(app string) *asking {
	s.t.Helper()
	const clients = 4
	address := s.address(app)
	ctx, cancel := context.WithCancel(s.t.Context())
	a := &asking{}
	var mu sync.Mutex
	var lost []string
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := s.askOnce(context.WithoutCancel(ctx), address, "org/"+app)
				if err != nil {
					mu.Lock()
					lost = append(lost, err.Error())
					mu.Unlock()
				} else {
					a.answered.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-time.After(askPause):
				}
			}
		})
	}
	a.stop = sync.OnceValue(func() []string { cancel(); all.Wait(); return lost })
	s.t.Cleanup(func() { a.stop() })
	return a
}

// more is true once each of them has been answered a hundred times more.
func (s *site) more(all ...*asking) func() bool {
	var from []int64
	for _, a := range all {
		from = append(from, a.answered.Load())
	}
	return func() bool {
		for i, a := range all {
			if a.answered.Load() < from[i]+100 {
				return false
			}
		}
		return true
	}
}
