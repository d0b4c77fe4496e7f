package gpu_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/simgpu"
)

// inventory is two GPUs, whose driver can be told to hang.
type inventory struct {
	mu    sync.Mutex
	hangs map[string]chan struct{} // by UUID; closed when the driver goes on
	slow  time.Duration            // what each answer takes
	calls map[string]int           // that have begun, by UUID
}

func newInventory() *inventory {
	return &inventory{hangs: map[string]chan struct{}{}, calls: map[string]int{}}
}

func (i *inventory) Kind() string  { return "nvml" }
func (i *inventory) Env() []string { return nil }

func (i *inventory) AllDevices() []gpu.Device { return i.Devices() }

func (i *inventory) Devices() []gpu.Device {
	return []gpu.Device{{UUID: "GPU-a"}, {UUID: "GPU-b", Index: 1}}
}

func (i *inventory) wait(uuid string) {
	i.mu.Lock()
	i.calls[uuid]++
	hang := i.hangs[uuid]
	i.mu.Unlock()
	time.Sleep(i.slow)
	if hang != nil {
		<-hang
	}
}

func (i *inventory) Memory(uuid string) (gpu.Memory, error) {
	i.wait(uuid)
	return gpu.Memory{TotalBytes: gib}, nil
}

func (i *inventory) Health(uuid string) gpu.Health {
	i.wait(uuid)
	return gpu.Health{OK: true}
}

func (i *inventory) Close() error {
	i.wait("GPU-a")
	return nil
}

func (i *inventory) hang(uuid string) (goOn func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	hang := make(chan struct{})
	i.hangs[uuid] = hang
	return func() {
		i.mu.Lock()
		delete(i.hangs, uuid)
		i.mu.Unlock()
		close(hang)
	}
}

// timed returns how long a call took.
func timed(call func()) time.Duration {
	began := time.Now()
	call()
	return time.Since(began)
}

func TestADriverThatHangsIsWaitedForOnceAndForItsGPUAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newInventory()
		guarded := gpu.Guard(inner, slog.New(slog.DiscardHandler))
		goOn := inner.hang("GPU-a")
		silent := func() {
			_, err := guarded.Memory("GPU-a")
			var e *gpu.SilentError
			require.ErrorAs(t, err, &e)
			require.Contains(t, err.Error(), "does not answer")
		}
		require.Equal(t, 3*time.Second, timed(silent))
		for range 100 {
			require.Zero(t, timed(silent))
			require.Zero(t, timed(func() {
				require.Contains(t, guarded.Health("GPU-a").Reason, "does not answer")
				require.True(t, guarded.Health("GPU-b").OK)
				memory(t, nopCloser{guarded}, "GPU-b")
			}))
		}
		require.Equal(t, 1, inner.calls["GPU-a"], "one call waits for the driver")
		require.Equal(t, time.Second, timed(func() { require.NoError(t, guarded.Close()) }))

		goOn()
		synctest.Wait()
		require.True(t, guarded.Health("GPU-a").OK)
		memory(t, nopCloser{guarded}, "GPU-a")
	})
}

type nopCloser struct{ *gpu.Guarded }

func (nopCloser) Close() error { return nil }

func TestASlowDriverAnswersEachCallerInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newInventory()
		inner.slow = 2 * time.Second
		guarded := gpu.Guard(inner, slog.New(slog.DiscardHandler))
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { require.True(t, guarded.Health("GPU-a").OK) })
		}
		require.Equal(t, 4*time.Second, timed(all.Wait))
	})
}

func TestAGPUWhoseDriverHangsAtTheStartKeepsItsIndex(t *testing.T) {
	dir, _ := writeList(t,
		simgpu.GPU{UUID: "GPU-c", Index: 2, Product: "GPU", MemoryTotalBytes: gib},
		simgpu.GPU{UUID: "GPU-b", Index: 1, Product: "GPU", MemoryTotalBytes: gib},
		simgpu.GPU{UUID: "GPU-a", Index: 0, Product: "GPU", MemoryTotalBytes: gib})
	library := library(t, dir)
	hang := filepath.Join(dir, "GPU-b", "hang")
	put(t, dir, "GPU-b", "hang")
	p, err := gpu.Open(gpu.Options{Source: "auto", NVMLLibrary: library})
	require.NoError(t, err)
	require.Equal(t, []gpu.Device{
		{UUID: "GPU-a", Index: 0, Product: "GPU", MemoryTotalBytes: gib},
		{UUID: "GPU-c", Index: 2, Product: "GPU", MemoryTotalBytes: gib},
	}, p.Devices())
	require.True(t, p.Health("GPU-c").OK)
	require.NoError(t, os.Remove(hang))
	require.NoError(t, p.Close())
}
