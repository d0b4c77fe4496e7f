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
				case <-time.After(5 * time.Millisecond):
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
