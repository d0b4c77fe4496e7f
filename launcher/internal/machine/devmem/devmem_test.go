package devmem

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// device is GPU g0 of 80 GiB; the test says who holds what.
type device struct {
	mu      sync.Mutex
	holders []gpu.Process
	fail    error
}

func (d *device) Memory(uuid string) (gpu.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uuid != "g0" {
		return gpu.Memory{}, errors.New("no such GPU")
	}
	m := gpu.Memory{TotalBytes: 80 * gib, ProcessesKnown: true, Processes: d.holders}
	for _, p := range d.holders {
		m.UsedBytes += p.Bytes
	}
	m.FreeBytes = m.TotalBytes - m.UsedBytes
	return m, d.fail
}

func (d *device) hold(holders ...gpu.Process) { d.mu.Lock(); d.holders = holders; d.mu.Unlock() }

func holds(pid int, gibs uint64) gpu.Process { return gpu.Process{PID: pid, Bytes: gibs * gib} }

// trees is what a look at every process of the machine finds.
type trees struct {
	mu     sync.Mutex
	found  map[int]string
	fail   error
	looks  int
	onLook func()
}

func (s *trees) Owners() (map[int]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	if s.onLook != nil {
		s.onLook()
	}
	return s.found, s.fail
}

const returnTime = 30 * time.Second

func newMeter(processes Processes) (*Meter, *device, *trees) {
	d, s := &device{}, &trees{found: map[int]string{}}
	return New(Options{GPUs: d, Processes: processes, Trees: s, ReturnTime: returnTime, Logger: slog.New(slog.DiscardHandler)}), d, s
}

// leader is a living process that leads a session of its own.
func leader(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestAnInstanceHoldsWhatTheProcessesOfItsSessionHold(t *testing.T) {
	m, device, trees := newMeter(procfs.Table{})
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 300 & echo $!; read wait")
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := shell.StdinPipe()
	require.NoError(t, err)
	output, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		_ = input.Close()
		_ = shell.Wait()
	})
	line := make([]byte, 32)
	n, err := output.Read(line)
	require.NoError(t, err)
	worker, err := strconv.Atoi(string(line[:n-1]))
	require.NoError(t, err)

	m.Follow("a", shell.Process.Pid)
	device.hold(holds(shell.Process.Pid, 1), holds(worker, 20))
	assert.Equal(t, map[string]uint64{"g0": 21 * gib}, m.Held("a", []string{"g0"}))
	assert.ElementsMatch(t, []int{shell.Process.Pid, worker}, m.Holders("a", []string{"g0"})["g0"])
	assert.Zero(t, trees.looks, "its session tells")
}

func TestAProcessThatLeftTheSessionIsFoundByItsTreeOnce(t *testing.T) {
	m, device, trees := newMeter(procfs.Table{})
	worker, stranger := leader(t).Process.Pid, leader(t).Process.Pid
	trees.found[worker] = "a"
	device.hold(holds(worker, 30), holds(stranger, 7))
	for range 3 {
		r := m.Read([]string{"g0"})
		assert.Equal(t, map[string]map[string]uint64{"a": {"g0": 30 * gib}}, r.Held)
		assert.Equal(t, 37*gib, r.GPUs["g0"].UsedBytes)
	}
	assert.Equal(t, 1, trees.looks)
}

func TestWhatAnEndedProcessHoldsIsItsInstancesUntilThatIsForgotten(t *testing.T) {
	m, device, trees := newMeter(procfs.Table{})
	root, worker, stranger := leader(t), leader(t), leader(t)
	m.Follow("a", root.Process.Pid)
	trees.found[worker.Process.Pid] = "a"
	device.hold(holds(root.Process.Pid, 1), holds(worker.Process.Pid, 2), holds(stranger.Process.Pid, 4))
	require.Equal(t, 3*gib, m.Held("a", []string{"g0"})["g0"])
	for _, cmd := range []*exec.Cmd{root, worker, stranger} {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
	assert.Equal(t, 3*gib, m.Held("a", []string{"g0"})["g0"], "the driver has not given it back yet")
	m.Forget("a")
	assert.Empty(t, m.Read([]string{"g0"}).Held)
}

func TestALookThatFailsIsTakenAgainForTheNextQuestion(t *testing.T) {
	m, device, trees := newMeter(procfs.Table{})
	worker := leader(t).Process.Pid
	trees.found[worker], trees.fail = "a", errors.New("too many open files")
	device.hold(holds(worker, 30))
	assert.Empty(t, m.Held("a", []string{"g0"}))
	trees.fail = nil
	assert.Equal(t, 30*gib, m.Held("a", []string{"g0"})["g0"])
}

func TestNobodyWaitsForALookToFollowOrToForget(t *testing.T) {
	m, device, trees := newMeter(procfs.Table{})
	device.hold(holds(leader(t).Process.Pid, 1))
	trees.onLook = func() { // would wait for ever, were the lock held
		m.Follow("a", 17)
		m.Forget("a")
	}
	m.Read([]string{"g0"})
	assert.Equal(t, 1, trees.looks)
}

// table is processes whose ids are given again.
type table map[int]procfs.Stat

func (p table) Read(pid int) (procfs.Stat, error) {
	if stat, ok := p[pid]; ok {
		return stat, nil
	}
	return procfs.Stat{}, syscall.ESRCH
}

func (p table) Session(pid int) (int, error) { stat, err := p.Read(pid); return stat.Session, err }
func (p table) Resident(int) procfs.Resident { return procfs.Resident{} }

func TestAProcessIDThatIsGivenAgainIsLookedForAgain(t *testing.T) {
	processes := table{7: {PID: 7, Session: 7, StartTime: 100}}
	m, device, trees := newMeter(processes)
	trees.found[7] = "a"
	device.hold(holds(7, 3))
	require.Equal(t, 3*gib, m.Held("a", []string{"g0"})["g0"])
	processes[7], trees.found = procfs.Stat{PID: 7, Session: 7, StartTime: 200}, map[int]string{}
	assert.Empty(t, m.Held("a", []string{"g0"}))
}

func TestStrangersThatHaveEndedAreNotRemembered(t *testing.T) {
	processes := table{}
	m, device, trees := newMeter(processes)
	for pid := range 100 {
		processes[pid+2] = procfs.Stat{PID: pid + 2, Session: pid + 2, StartTime: 1}
		device.hold(holds(pid+2, 1))
		m.Read([]string{"g0"})
		delete(processes, pid+2)
	}
	assert.Equal(t, 100, trees.looks)
	assert.Len(t, m.owners.seen, 1)
}

func TestAGPUThatCannotBeReadIsLeftOut(t *testing.T) {
	m, _, _ := newMeter(procfs.Table{})
	r := m.Read([]string{"g0", "g1"})
	assert.Contains(t, r.GPUs, "g0")
	assert.NotContains(t, r.GPUs, "g1")
}

func TestMemoryThatComesBackIsWaitedForAndTheRestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, device, _ := newMeter(table{7: {PID: 7, Session: 7, StartTime: 1}})
		m.Follow("a", 7)
		device.hold(holds(7, 60))
		before := m.Held("a", []string{"g0"})
		time.AfterFunc(time.Second, func() { device.hold(holds(7, 2)) })
		began := time.Now()
		assert.Equal(t, map[string]uint64{"g0": 2 * gib}, m.AwaitFreed(t.Context(), "a", []string{"g0"}, before))
		assert.InDelta(t, time.Second, time.Since(began), float64(longestPoll))
	})
}

func TestMemoryThatDoesNotComeBackIsWaitedForNoLongerThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, device, _ := newMeter(table{7: {PID: 7, Session: 7, StartTime: 1}})
		m.Follow("a", 7)
		device.hold(holds(7, 60))
		began := time.Now()
		held := m.AwaitFreed(t.Context(), "a", []string{"g0"}, m.Held("a", []string{"g0"}))
		assert.Equal(t, 60*gib, held["g0"])
		require.ErrorContains(t, m.AwaitReturned(t.Context(), map[string][]int{"g0": {7}}), "GPU g0 had not come back 30s after its processes were gone")
		require.ErrorContains(t, m.AwaitFree(t.Context(), map[string]uint64{"g0": 30 * gib}), "only 20.0 GiB (21474836480 bytes) were free after 30s")
		assert.Equal(t, 3*returnTime, time.Since(began))

		device.fail = errors.New("the driver is gone")
		require.ErrorContains(t, m.AwaitFree(t.Context(), map[string]uint64{"g0": 1}), "cannot read the memory of GPU g0: the driver is gone")
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began = time.Now()
		require.Error(t, m.AwaitReturned(ctx, map[string][]int{"g0": {7}}))
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestMemoryThatCannotBeReadCountsAsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, device, _ := newMeter(table{7: {PID: 7, Session: 7, StartTime: 1}})
		m.Follow("a", 7)
		device.hold(holds(7, 60))
		before := m.Held("a", []string{"g0"})
		device.fail = errors.New("the driver hangs")
		began := time.Now()
		assert.Equal(t, before, m.AwaitFreed(t.Context(), "a", []string{"g0"}, before))
		assert.Equal(t, returnTime, time.Since(began))
		require.ErrorContains(t, m.AwaitReturned(t.Context(), m.Holders("a", []string{"g0"})), "cannot tell whether the memory of GPU g0 has come back: the driver hangs")
	})
}

func TestMemoryThatIsFreeIsNotWaitedFor(t *testing.T) {
	m, device, _ := newMeter(table{})
	device.hold(holds(9, 60))
	require.NoError(t, m.AwaitFree(t.Context(), map[string]uint64{"g0": 20 * gib}))
	require.NoError(t, m.AwaitReturned(t.Context(), map[string][]int{"g0": {7}}), "another process holds it")
}
