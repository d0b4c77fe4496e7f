package supervisor

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/eventlog"
	"hotseat.dev/hotseat/launcher/internal/core/gpuqueue"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor/supervisortest"
	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// bystander is a living process in a session of its own that, for the fakes, belongs to
// no instance.
func bystander(tb testing.TB) int {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "/bin/sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestForeignProcessIsLookedUpOnce(t *testing.T) {
	stranger := bystander(t)
	in(t, func(t *testing.T, r *rig) {
		r.runner.onLook = func() { r.List() } // would deadlock if the lock were held
		for n := range 20 {
			r.awake(fmt.Sprint(n), "0.01")
			r.gpus.hold("g0", r.runner.tree(fmt.Sprint(n)).pid, 1)
		}
		r.gpus.hold("g0", stranger, 7)
		for range 3 {
			assert.Equal(t, 7*gib, r.GPUs().GPUs[0].ForeignBytes)
		}
		assert.Equal(t, 1, r.runner.looked(), "it stays a stranger while it lives")
		other := bystander(t)
		r.gpus.hold("g1", other, 3)
		list := r.GPUs()
		assert.Equal(t, 7*gib, list.GPUs[0].ForeignBytes)
		assert.Equal(t, 3*gib, list.GPUs[1].ForeignBytes)
		assert.Equal(t, 2, r.runner.looked(), "one look for both GPUs")
	})
}

func TestWorkerOutsideTheSessionCountsWithItsInstance(t *testing.T) {
	worker := bystander(t)
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.5")
		r.runner.owners = map[int]string{worker: "a"}
		r.gpus.hold("g0", worker, 30)
		for range 2 {
			list := r.GPUs()
			assert.Zero(t, list.GPUs[0].ForeignBytes)
			assert.Equal(t, 40*gib, list.GPUs[0].Awake[0].Bytes)
		}
		r.gpus.hold("g0", worker, 50)
		assert.Equal(t, 50*gib, r.GPUs().GPUs[0].Awake[0].Bytes, "more than was expected")
	})
}

// hosted is a Runner with real processes.
type hosted struct{ *process.Host }

func (h hosted) Start(c process.Command) (Tree, error) { return h.Host.Start(c) }

func (h hosted) Adopt(name string, id process.ID) (Tree, error) { return h.Host.Adopt(name, id) }

// BenchmarkGPUs measures GPUs with real processes and a fake driver.
func BenchmarkGPUs(b *testing.B) {
	for _, instances := range []int{10, 120, 200} {
		for _, strangers := range []int{0, 1} {
			b.Run(fmt.Sprintf("%d instances, %d strangers", instances, strangers), func(b *testing.B) {
				logger := slog.New(slog.DiscardHandler)
				groups, err := cgroup.Open(cgroup.Options{Mode: cgroup.None, Name: "hotseat-bench", Logger: logger})
				require.NoError(b, err)
				host, err := process.NewHost(process.Options{Mark: fmt.Sprintf("bench-%d", os.Getpid()), Cgroups: groups, Logger: logger})
				require.NoError(b, err)
				gpus := &fakeGPUs{processes: map[string][]gpu.Process{}}
				s := New(Options{GPUs: gpus, Runner: hosted{host}, Processes: procfs.Table{}, Feed: eventlog.New(100, 0), Turns: &gpuqueue.Queue{}, Logger: logger, Observer: supervisortest.Nobody{}})
				b.Cleanup(func() { require.NoError(b, host.Close()) })
				var ended sync.WaitGroup
				b.Cleanup(ended.Wait)
				for n := range instances {
					name := fmt.Sprint(n)
					tree, err := host.Start(process.Command{Name: name, Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Env: os.Environ()})
					require.NoError(b, err)
					b.Cleanup(func() { ended.Go(func() { _ = tree.Kill(b.Context()) }) })
					s.instances[name] = &instance{
						facts: facts{ID: name, Spec: spec("0.001")}, engine: &fakeEngine{}, tree: tree, root: tree.ID(),
						state: launcher.Awake,
					}
					s.meter.Follow(name, tree.ID().PID)
					gpus.hold("g0", tree.ID().PID, 0)
					gpus.processes["g0"] = append(gpus.processes["g0"], gpu.Process{PID: tree.ID().PID, Bytes: 1 << 20})
				}
				for range strangers {
					gpus.hold("g0", bystander(b), 1)
				}
				for b.Loop() {
					if got := len(s.GPUs().GPUs[0].Awake); got != instances {
						b.Fatalf("%d instances are seen", got)
					}
				}
			})
		}
	}
}
