package supervisor

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
)

// onDisk runs a test on a disk that may stall.
func onDisk(t *testing.T, test func(t *testing.T, r *rig, disk *stallingRecords), change ...func(*Options)) {
	t.Helper()
	disk := &stallingRecords{}
	in(t, func(t *testing.T, r *rig) { test(t, r, disk) },
		append(change, func(o *Options) { disk.Records, o.Records = o.Records, disk })...)
}

// wakesSilently wakes "a", whose engine and disk answer nothing until the function that it
// returns is called.
func (r *rig) wakesSilently(disk *stallingRecords) (end func()) {
	r.t.Helper()
	r.asleepAndKnown()
	answers := disk.stall()
	r.engine.answers(noAnswer)
	sleep := r.engine.sleep
	r.engine.sleep = never
	_, err := r.Wake("a", launcher.VerbRequest{})
	require.NoError(r.t, err)
	return func() {
		r.engine.sleep = sleep
		answers()
	}
}

func TestEngineOnAStalledDiskIsJudgedWhenItAnswers(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		end := r.wakesSilently(disk)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "waking", view.State)
		assert.Contains(t, view.Reason, "does not answer, and may be waiting for the disk, to write its log: the disk of the state folder does not answer since ")
		assert.Equal(t, "shut", r.gates.gate("a").get())
		end()
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.Error(t, err)
		view, err = r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "sleeping", view.State)
		assert.NotContains(t, view.Reason, "may be waiting")
		assert.Zero(t, r.runner.tree("a").killed)
	}, withFingerprints)
}

func TestEngineIsEndedIfTheDiskStallsForTooLong(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		defer r.wakesSilently(disk)()
		began := time.Now()
		<-r.runner.tree("a").Done()
		assert.InDelta(t, stallLimit, time.Since(began), float64(time.Minute))
		synctest.Wait()
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "failed", view.State)
		assert.Contains(t, view.Reason, "it could not be put back to sleep")
	}, withFingerprints)
}

func TestInstanceThatWaitsForTheDiskCanBeDeleted(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		defer r.wakesSilently(disk)()
		time.Sleep(5 * time.Minute)
		var i *instance
		r.under(func() { i = r.instances["a"] })
		began := time.Now()
		_, err := r.Delete(t.Context(), "a")
		require.NoError(t, err)
		assert.Less(t, time.Since(began), time.Minute)
		r.noteAwaitsDisk(i, "too late")
		all := types(r)
		assert.Equal(t, "DELETED", string(all[len(all)-1]))
	}, withFingerprints)
}

func TestFailedSleepIsRolledBackWhenTheDiskAnswers(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		r.awake("a", "0.9")
		var end func()
		r.engine.sleep = func(ctx context.Context) error { // the record is written by now
			end = disk.stall()
			return never(ctx)
		}
		r.engine.wake = never
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "falling_asleep", r.state("a"))
		r.engine.wake = nil
		end()
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.Error(t, err)
		assert.Equal(t, "awake", r.state("a"))
		assert.Zero(t, r.runner.tree("a").killed)
	})
}

func TestStartHasItsWholeTimeAfterAStall(t *testing.T) {
	for name, starts := range map[string]bool{"it becomes healthy": true, "it never does": false} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
				var healthy atomic.Bool
				r.engine.ready = func(context.Context) error {
					if healthy.Load() {
						return nil
					}
					return errBroken
				}
				r.create("a", "0.9")
				time.Sleep(time.Minute)
				end := disk.stall() // nobody writes but the launcher, to see whether the disk answers
				time.Sleep(r.opts.Limits.Start)
				synctest.Wait()
				view, err := r.Get("a")
				require.NoError(t, err)
				assert.Equal(t, "starting", view.State)
				assert.Contains(t, view.Reason, "may be waiting for the disk")
				end()
				time.Sleep(r.opts.Limits.Start - time.Second)
				synctest.Wait()
				healthy.Store(starts)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				view, err = r.Get("a")
				require.NoError(t, err)
				if starts {
					assert.Equal(t, "awake", view.State)
					assert.Empty(t, view.Reason)
				} else {
					assert.Equal(t, "failed", view.State)
				}
			})
		})
	}
}

// The disk stalls after the last record was written, and answers before the time of the engine
// is over.
func TestStallThatIsOverCountsToo(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		r.asleepAndKnown()
		r.engine.answers(func(ctx context.Context) (engine.Answer, error) {
			time.Sleep(time.Millisecond)
			end := disk.stall()
			time.Sleep(fingerprintTime - time.Second)
			end()
			return noAnswer(ctx)
		})
		_, err := r.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Awake)
		require.Error(t, err)
		assert.Equal(t, "sleeping", r.state("a"))
		assert.Zero(t, r.runner.tree("a").killed)
	}, withFingerprints)
}

func TestStallThatEndsDuringAQuietEnginesCheckCounts(t *testing.T) {
	onDisk(t, func(t *testing.T, r *rig, disk *stallingRecords) {
		r.awake("a", "0.9")
		r.engine.answers(noAnswer)
		end := disk.stall()
		r.quiet()
		time.Sleep(hangAnswerLimit - time.Second)
		end()
		time.Sleep(time.Minute)
		assert.Equal(t, "awake", r.state("a"))
		time.Sleep(10 * time.Minute)
		r.quiet()
		time.Sleep(time.Hour)
		assert.Equal(t, "failed", r.state("a"), "it has had its whole time")
	}, withHangs)
}

// recoveredAsleep recovers "a", whose engine sleeps although its record says that it is awake.
// The disk stalls before the launcher can correct the record.
func recoveredAsleep(t *testing.T, r *rig) (fresh *rig, end func()) {
	t.Helper()
	r.awakeWith("a", 40)
	memory := remembered(t, r)
	require.Equal(t, launcher.Awake, memory.Instances[0].State)
	disk := &stallingRecords{}
	fresh, _ = nextLife(t, r, func(o *Options) { disk.Records, o.Records = o.Records, disk })
	r.gpus.hold("g0", firstPID, 2)
	require.NoError(t, fresh.engine.set((&instance{facts: memory.Instances[0].Facts}).engineURL(), true, nil))
	end = disk.stall()
	require.NoError(t, fresh.Recover(t.Context(), memory))
	require.Equal(t, "sleeping", fresh.state("a"))
	return fresh, end
}

func TestFailedWakeSleepsAtALevelThatIsRecorded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		fresh, end := recoveredAsleep(t, r)
		defer fresh.Close(context.Background(), false)
		fresh.engine.wake = broken
		_, err := fresh.Wake("a", launcher.VerbRequest{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"wake 2"}, fresh.engine.noted(), "the record names level 1 still")
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Equal(t, "waking", view.State)
		assert.Contains(t, view.Reason, "waits for its record to be written before it is put back to sleep: the disk of the state folder does not answer since ")
		assert.NotContains(t, view.Reason, "its log", "the engine was not asked")
		end()
		_, err = fresh.AwaitState(t.Context(), "a", launcher.Awake)
		require.Error(t, err)
		assert.Equal(t, "sleeping", fresh.state("a"))
		assert.Equal(t, []string{"wake 2", "sleep 2"}, fresh.engine.noted())
	})
}

func TestUndoSleepsAtALevelThatIsRecorded(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		fresh, end := recoveredAsleep(t, r)
		defer fresh.Close(context.Background(), false)
		defer end()
		fresh.under(func() { fresh.instances["a"].swapID = "s" })
		c := fresh.Reclaim(launcher.Plan{SwapID: "s", In: "a"})
		defer c.Release()
		require.NoError(t, c.Wake(t.Context()))
		require.Error(t, c.SendBack(t.Context()))
		assert.Equal(t, []string{"wake 2"}, fresh.engine.noted(), "the record names level 1 still")
	})
}
