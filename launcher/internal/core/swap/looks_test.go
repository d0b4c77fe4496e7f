package swap

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// counted is GPUs that count how often the memory of each GPU is read.
type counted struct {
	empty
	mu    sync.Mutex
	looks map[string]int
}

func (c *counted) Memory(uuid string) (gpu.Memory, error) {
	c.mu.Lock()
	c.looks[uuid]++
	c.mu.Unlock()
	return c.empty.Memory(uuid)
}

func TestSwapReadsOnlyItsOwnGPUsMemory(t *testing.T) {
	gpus := &counted{looks: map[string]int{}}
	in(t, func(t *testing.T, w *world) {
		w.asleep("x", "g0")
		w.awake("y", "g0")
		gpus.looks = map[string]int{}
		r, err := w.begin(launcherapi.SwapRequest{In: &launcherapi.SwapIn{InstanceID: "x"}}).Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, launcherapi.OutcomeDone, r.Outcome)
		// Memory is read at admission, before and after the sleep, until there is room, and after the wake.
		assert.Equal(t, map[string]int{"g0": 6}, gpus.looks)
	}, func(o *supervisor.Options) { o.GPUs = gpus })
}
