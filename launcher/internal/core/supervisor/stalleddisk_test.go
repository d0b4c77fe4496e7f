package supervisor

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// stallingRecords is the Records of a disk that may stall.
type stallingRecords struct {
	Records
	mu     sync.Mutex
	stalls chan struct{} // nil: it does not stall
}

func (s *stallingRecords) wait() {
	s.mu.Lock()
	stalls := s.stalls
	s.mu.Unlock()
	if stalls != nil {
		<-stalls
	}
}

func (s *stallingRecords) Put(id string, record any) error {
	s.wait()
	return s.Records.Put(id, record)
}
func (s *stallingRecords) Doubt(id string) error  { s.wait(); return s.Records.Doubt(id) }
func (s *stallingRecords) Remove(id string) error { s.wait(); return s.Records.Remove(id) }

// stall has the disk stall until the function that it returns is called.
func (s *stallingRecords) stall() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.stalls)
		s.stalls = nil
	}
}

// onStallingDisk runs a test with an instance that is awake and one that sleeps.
func onStallingDisk(t *testing.T, test func(t *testing.T, r *rig, disk *stallingRecords)) {
	t.Helper()
	disk := &stallingRecords{}
	in(t, func(t *testing.T, r *rig) {
		r.awake("asleep", "0.3")
		r.asleep("asleep")
		r.awake("awake", "0.3")
		test(t, r, disk)
	}, func(o *Options) { disk.Records, o.Records = o.Records, disk })
}

func TestStalledDiskRefusesOnlyWhatNeedsARecord(t *testing.T) {
	onStallingDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		end := disk.stall()
		began := time.Now()
		_, err := r.Create(launcher.CreateRequest{ID: "new", Spec: spec("0.3")})
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err), "%v", err)
		assert.ErrorContains(t, err, "the disk of the state folder does not answer")
		assert.Equal(t, statedir.Patience, time.Since(began))
		assert.NotNil(t, r.runner.tree("awake"))
		assert.Nil(t, r.runner.tree("new"), "no process without a record")
		assert.True(t, r.StalledSince().Equal(began))

		began = time.Now()
		calls := len(r.engine.noted())
		_, err = r.Sleep("awake", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "awake", launcher.Sleeping)
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err), "%v", err)
		assert.Equal(t, "awake", r.state("awake"))
		assert.Equal(t, "open", r.gates.gate("awake").get())
		assert.Len(t, r.engine.noted(), calls, "only a record tells at which level an engine sleeps")

		_, err = r.tryClaim(toDo(launcher.Plan{SwapID: "s", Out: []string{"awake"}}))
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err), "%v", err)
		view, err := r.Get("awake")
		require.NoError(t, err)
		assert.Empty(t, view.SwapID)

		r.wakes("asleep")
		_, err = r.Delete(t.Context(), "awake")
		require.NoError(t, err)
		all, _ := r.List()
		assert.Len(t, all, 1)
		assert.Less(t, time.Since(began), statedir.Patience, "it is known that the disk stalls")

		end()
		state := remembered(t, r)
		require.Len(t, state.Instances, 1, "neither the one that was refused nor the one that was deleted")
		assert.Equal(t, launcher.Awake, state.Instances[0].State)
		assert.Zero(t, r.StalledSince())
		r.asleep("asleep")
	})
}

func TestNoLockIsHeldWhileTheDiskStalls(t *testing.T) {
	onStallingDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		end := disk.stall()
		defer end()
		_, err := r.Wake("asleep", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait() // the engine's record is being written
		require.True(t, r.mu.TryLock())
		r.mu.Unlock()
	})
}

func TestCloseIsBoundedWhileTheDiskStalls(t *testing.T) {
	onStallingDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		end := disk.stall()
		defer end()
		_, err := r.Wake("asleep", launcher.VerbRequest{})
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, r.Close(context.Background(), false))
		assert.LessOrEqual(t, time.Since(began), 2*statedir.Patience)
	})
}

// silentLogs are on a disk that does not answer.
type silentLogs struct {
	fakeLogs
	over chan struct{}
}

func (l silentLogs) Tail(string, int, int) ([]string, error) { <-l.over; return nil, nil }
func (l silentLogs) Size(string) int64                       { <-l.over; return 0 }

func TestStalledLogDelaysNeitherEndNorSleep(t *testing.T) {
	over := make(chan struct{})
	in(t, func(t *testing.T, r *rig) {
		defer close(r.opts.Logs.(silentLogs).over)
		r.awake("a", "0.3")
		began := time.Now()
		r.asleep("a")
		_, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(began), 3*statedir.Patience)
	}, func(o *Options) {
		over = make(chan struct{}) // of this bubble
		o.Logs = silentLogs{o.Logs.(fakeLogs), over}
	})
}

// An engine may wait for the disk, to write its log.
func TestStalledDiskExcusesTheSilenceOfAWokenEngine(t *testing.T) {
	disk := &stallingRecords{}
	in(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		end := disk.stall()
		defer end()
		r.engine.answers(noAnswer)
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.Error(t, err)
		assert.Equal(t, "sleeping", r.state("a"))
		assert.Zero(t, r.runner.tree("a").killed)
	}, withFingerprints, func(o *Options) { disk.Records, o.Records = o.Records, disk })
}

func TestQuietEngineIsLeftAloneWhileTheDiskStalls(t *testing.T) {
	disk := &stallingRecords{}
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.answers(noAnswer)
		end := disk.stall()
		r.quiet()
		time.Sleep(time.Hour)
		assert.Equal(t, "awake", r.state("a"))
		end()
		r.quiet()
		time.Sleep(10 * time.Minute)
		assert.Equal(t, "awake", r.state("a"), "it has its whole time since the stall")
		r.quiet()
		time.Sleep(time.Hour)
		assert.Equal(t, "failed", r.state("a"), "the next check ends it")
	}, withHangs, func(o *Options) { disk.Records, o.Records = o.Records, disk })
}

func (l silentLogs) Note(string, string) error { <-l.over; return nil }

// onSilentLogs runs a test whose logs are on a disk that does not answer.
func onSilentLogs(t *testing.T, test func(t *testing.T, r *rig), change ...func(*Options)) {
	t.Helper()
	in(t, func(t *testing.T, r *rig) {
		defer close(r.opts.Logs.(silentLogs).over)
		test(t, r)
	}, append(change, func(o *Options) { o.Logs = silentLogs{o.Logs.(fakeLogs), make(chan struct{})} })...)
}

func TestUnusableEnginesLogIsReadWithoutALock(t *testing.T) {
	onSilentLogs(t, func(t *testing.T, r *rig) {
		r.asleepAndKnown()
		r.engine.answers(garbage)
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, r.mu.TryLock())
		r.mu.Unlock()
	}, withFingerprints)
}

func TestHangingEnginesLogIsReadWithoutALock(t *testing.T) {
	onSilentLogs(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		r.engine.answers(noAnswer)
		r.quiet()
		time.Sleep(hangAnswerLimit + time.Second)
		require.True(t, r.mu.TryLock())
		r.mu.Unlock()
	}, withHangs)
}

func TestStartWithoutAFingerprintDoesNotWaitForItsLog(t *testing.T) {
	onSilentLogs(t, func(t *testing.T, r *rig) {
		r.engine.answers(noAnswer)
		began := time.Now()
		r.awake("a", "0.9")
		assert.LessOrEqual(t, time.Since(began), fingerprintTime+2*statedir.Patience)
	}, withFingerprints)
}

func TestSwapIsUndoneWhileTheDiskStalls(t *testing.T) {
	for name, level := range map[string]int{"at level 1": 1, "at level 2": 2} {
		t.Run(name, func(t *testing.T) {
			onStallingDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
				r.wakes("asleep")
				_, err := r.Sleep("asleep", launcher.VerbRequest{Level: level})
				require.NoError(t, err)
				_, err = r.AwaitState(t.Context(), "asleep", launcher.Sleeping)
				require.NoError(t, err)
				c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "asleep", Room: &launcher.Room{ID: "asleep"}}))
				defer c.Release()
				end := disk.stall()
				defer end()
				require.NoError(t, c.Wake(t.Context()))
				require.NoError(t, c.SendBack(t.Context()), "the record names the level")
				assert.Equal(t, "sleeping", r.state("asleep"))
			})
		})
	}
}

func TestUndoWaitsForTheRecordOfAnotherLevel(t *testing.T) {
	onStallingDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		c := r.claims(toDo(launcher.Plan{SwapID: "s", In: "asleep", Room: &launcher.Room{ID: "asleep"}}))
		defer c.Release()
		end := disk.stall()
		defer end()
		require.NoError(t, c.Wake(t.Context()))
		r.under(func() { r.instances["asleep"].level = 2 })
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(c.SendBack(t.Context())))
	})
}

// releases is a store that records which leases end.
type releases struct {
	Models
	of []string
}

func (m *releases) Release(holder string) error { m.of = append(m.of, holder); return nil }

func TestLateLeaseOfAReservedIDIsKept(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		ask := r.toMake("s", "x")
		c := r.claims(ask)
		ask.Draft.local = modelSource{From: launcherapi.ModelFromCache, ID: "key"}
		late := &Draft{ID: "x"}
		models := &releases{}
		r.opts.Models = models
		r.unlease("x", nil, late)
		assert.Empty(t, models.of, "swap s is to create x")
		r.unlease("x", nil, ask.Draft)
		assert.Equal(t, []string{"instance x"}, models.of, "its own lease came too late")
		r.opts.Models = nil
		c.Release()
		r.opts.Models = models
		r.unlease("x", nil, late)
		assert.Len(t, models.of, 2)
		r.opts.Models = nil
	})
}

// hangingLeases are leases in a store whose next release hangs.
type hangingLeases struct {
	leases
	hung chan struct{}
}

func (m *hangingLeases) Release(holder string) error {
	if hung := m.hung; hung != nil {
		m.hung = nil
		<-hung
	}
	return m.leases.Release(holder)
}

func TestReleaseThatHangsEndsNoLeaseOfTheNextInstance(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.2")
		hung := make(chan struct{})
		models := &hangingLeases{leases{of: map[string]string{"instance a": "earlier"}}, hung}
		r.opts.Models = models
		defer func() { r.opts.Models = nil }()
		before := &instance{}
		r.unlease("a", before, nil) // the supervisor does not wait for it
		next := &Draft{ID: "a", local: modelSource{From: launcherapi.ModelFromCache, ID: "key"}}
		r.under(func() { r.instances["a"].facts.Local = next.local })
		leased := make(chan error)
		go func() { leased <- r.lease(next) }()
		synctest.Wait()
		close(hung)
		require.NoError(t, <-leased)
		r.unlease("a", before, nil) // which comes late
		assert.Equal(t, map[string]string{"instance a": "key"}, models.of)
	})
}
