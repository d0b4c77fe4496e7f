package swap

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestQueuedSwapIsRefusedWhenTheLauncherCloses(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		first, second := w.oneRunsOneWaits()
		closed := make(chan struct{})
		go func() { w.Close(context.Background()); close(closed) }()
		synctest.Wait()
		close(w.gates.busy)
		<-closed
		_, err := first.Wait(t.Context())
		require.NoError(t, err, "it had begun")
		r, err := second.Wait(t.Context())
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
		assert.Equal(t, launcherapi.OutcomeRefused, r.Outcome)
		assert.Equal(t, "awake", w.state("b"))
		assert.Equal(t, "gone", w.state("c"))
	})
}

// crowded is GPUs of which other processes hold a part.
type crowded struct {
	empty
	mu   sync.Mutex
	held uint64
}

func (c *crowded) hold(bytes uint64) { c.mu.Lock(); c.held = bytes; c.mu.Unlock() }

func (c *crowded) Memory(string) (gpu.Memory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return gpu.Memory{TotalBytes: 80 * gib, UsedBytes: c.held, FreeBytes: 80*gib - c.held, ProcessesKnown: true}, nil
}

func TestNoSwapFollowsAnUndoBrokenOffByClosing(t *testing.T) {
	m, gpus := newMoody(), &crowded{}
	in(t, func(t *testing.T, w *world) {
		w.awake("x", "g0")
		m.starts(until(make(chan struct{})))
		request := requestForNew("n", "g0")
		request.Timeout = new(launcherapi.Duration)
		*request.Timeout = launcherapi.Duration(time.Second)
		first := w.begin(request)
		synctest.Wait()
		require.Equal(t, "starting", w.state("n"))
		gpus.hold(40 * gib) // x cannot wake yet
		small := requestForNew("m", "g0")
		small.In.Args = []string{"model", "--gpu-memory-utilization", "0.1"}
		second := w.begin(small)
		_, err := first.Wait(t.Context())
		require.Equal(t, launcherapi.OutcomeUndoFailed, asFailed(err).Result.Outcome)
		require.ErrorContains(t, err, "continues")
		require.Equal(t, "sleeping", w.state("x"))
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		w.Close(ending)
		_, err = second.Wait(t.Context())
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err))
		var left []string
		for _, s := range w.unfinished() {
			left = append(left, s.Plan.SwapID)
		}
		assert.Equal(t, []string{first.ID()}, left, "of two on one GPU the next life of the launcher takes the first for over, and x would never wake")
		assert.Equal(t, "gone", w.state("m"))
	}, m.engines, func(o *supervisor.Options) { o.GPUs = gpus })
}
