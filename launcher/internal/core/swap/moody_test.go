package swap

import (
	"context"
	"sync"

	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// moody is an engine whose start does what the test says.
type moody struct {
	obedient
	mu    sync.Mutex
	start func(context.Context) error // nil: at once
}

func newMoody() *moody { return &moody{obedient: obedient{engine.NewVLLM(engine.VLLMOptions{})}} }

func (m *moody) engines(o *supervisor.Options) { o.Engines = []engine.Engine{m} }

func (m *moody) starts(f func(context.Context) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start = f
}

func (m *moody) Ready(ctx context.Context, _ string) error {
	m.mu.Lock()
	start := m.start
	m.mu.Unlock()
	if start == nil {
		return nil
	}
	return start(ctx)
}

// until makes each start wait for a channel.
func until(ready <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
