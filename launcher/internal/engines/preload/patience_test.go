package preload

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// fakeDisk is a disk that stalls when a test says so.
type fakeDisk struct {
	mu      sync.Mutex
	stalls  chan struct{} // closed when it answers again; nil: it answers
	stalled time.Time     // when it answered again last
	touched int
	asked   int // how often StalledAfter was called
}

func (d *fakeDisk) Touch() { d.mu.Lock(); defer d.mu.Unlock(); d.touched++ }

func (d *fakeDisk) StalledAfter(began time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.stalls != nil || d.stalled.After(began)
}

func (d *fakeDisk) UnderWay() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Time{}, d.stalls
}

func (d *fakeDisk) timesAsked() int { d.mu.Lock(); defer d.mu.Unlock(); return d.asked }

// stall has the disk stall until the function that it returns is called.
func (d *fakeDisk) stall() (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalls = make(chan struct{})
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(d.stalls)
		d.stalls, d.stalled = nil, time.Now()
	}
}

// silenced returns a fixture whose preloader was asked to fork, and does not answer while the
// disk stalls, and the preloader's process.
func silenced(t *testing.T) (f *fixture, pid int, end func()) {
	t.Helper()
	disk := &fakeDisk{}
	f = newFixture(t, func(f *fixture) { f.options.Disk = disk })
	f.ready()
	f.set(func(o *Options) { o.AnswerTime = 100 * time.Millisecond })
	pid = f.pool.List().Preloaders[0].PID
	end = disk.stall()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	assert.Contains(t, f.refusalReason(), "it did not answer")
	assert.Contains(t, f.refusalReason(), "busy with other forks", "that takes the preloader's time once more")
	assert.Equal(t, string(Ready), f.pool.List().Preloaders[0].State)
	return f, pid, end
}

func TestSilentPreloaderIsKeptWhileTheDiskStalls(t *testing.T) {
	f, pid, end := silenced(t)
	defer end()
	f.set(func(o *Options) { o.AnswerTime = 10 * time.Second })
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	f.forkedFacts("a")
	assert.Equal(t, pid, f.pool.List().Preloaders[0].PID)
	assert.Equal(t, 1, f.pool.List().Preloaders[0].Forks, "what it forked for those who did not wait has not run")
}

func TestPreloaderStillSilentAfterTheStallIsReplaced(t *testing.T) {
	f, pid, end := silenced(t)
	end()
	f.eventually("another one is there", func() bool {
		l := f.pool.List().Preloaders[0]
		return l.State == string(Ready) && l.PID != pid
	})
	_, err := procfs.Read(pid)
	assert.Error(t, err)
}

func TestPreloaderThatRefusesLateIsReplaced(t *testing.T) {
	for what, late := range map[string]answer{
		"it forked": {PID: 1}, "it could not fork for those who asked": {Error: "No such device"}, "it refused": {Refused: "cannot fork"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			f.ready()
			l := &preloader{state: Ready}
			r := &run{tree: f.pool.all[0].run.tree, turn: make(chan struct{}, 1), ended: make(chan string, 1)}
			l.run = r
			var theirs *os.File
			var err error
			r.conn, theirs, err = newConn()
			require.NoError(t, err)
			defer r.conn.Close()
			body, err := json.Marshal(late)
			require.NoError(t, err)
			_, err = theirs.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
			require.NoError(t, err)
			require.NoError(t, theirs.Close())
			f.pool.awaitLateAnswer(l, r, patience.Wait())
			if what != "it refused" {
				assert.Equal(t, Ready, l.state)
				return
			}
			require.Equal(t, Waiting, l.state)
			assert.Equal(t, "it did not fork: cannot fork", <-r.ended)
		})
	}
}

func TestPoolClosesWhileAPreloaderIsKeptForTheDisk(t *testing.T) {
	f, _, end := silenced(t)
	defer end()
	f.pool.Close()
	left, err := f.host.Find()
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestKilledPreloaderIsNotKeptForTheDisk(t *testing.T) {
	f, pid, end := silenced(t)
	defer end()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	f.eventually("another one is there", func() bool {
		l := f.pool.List().Preloaders[0]
		return l.State == string(Ready) && l.PID != pid
	})
}

func TestLoadHasItsTimeAgainAfterAStall(t *testing.T) {
	disk := &fakeDisk{}
	end := disk.stall()
	defer end()
	var open func()
	f := newFixture(t, func(f *fixture) {
		open = holdLoad(f)
		f.options.Disk, f.options.LoadTime = disk, 50*time.Millisecond
	})
	var pid int
	f.eventually("its time is over", func() bool {
		pid = f.pool.List().Preloaders[0].PID // its time may be over before its process starts
		return disk.timesAsked() > 0 && pid != 0
	})
	open()
	f.ready()
	assert.Equal(t, pid, f.pool.List().Preloaders[0].PID)
	assert.Zero(t, readTimes(f.options.Dir), "the load waited for the disk")
}

func TestPatienceWithAPreloaderIsBounded(t *testing.T) {
	const limit = time.Minute
	for name, c := range map[string]struct {
		stall, want time.Duration
	}{
		"the disk answers":                {0, limit},
		"the disk stalls for a while":     {limit + 30*time.Second, 2*limit + 30*time.Second},
		"the disk stalls within the time": {limit / 2, 2 * limit},
		"the disk stalls for good":        {24 * time.Hour, limit + stallLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &fakeDisk{}
				p := &Pool{opts: Options{Disk: disk, Logger: slog.New(slog.DiscardHandler)}}
				if c.stall > 0 {
					time.AfterFunc(c.stall, disk.stall())
				}
				began := time.Now()
				ctx, stop := p.withPatience(t.Context(), limit)
				<-ctx.Done()
				assert.Equal(t, c.want, time.Since(began))
				assert.NotZero(t, disk.touched)
				stop()
				p.wait.Wait()
			})
		})
	}
}
