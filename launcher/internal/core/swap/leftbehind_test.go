package swap

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestRecoveredSwapCannotBeCancelled(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		plan := w.claimAndBreakOff(planToCreate("s1", "n"))
		plan.Until = time.Now().Add(time.Hour)
		w.gates.busy = make(chan struct{})
		_, _ = w.sup.Sleep("a", launcher.VerbRequest{}) // the swap has claimed the instance
		w.Recover([]Saved{{Plan: plan, Began: time.Now(), Phase: "drain", Key: keyOf(t, "k", requestForNew("n", "g0"))}})
		_, err := w.CallOff("k")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "%v", err)
		close(w.gates.busy)
	})
}

func TestKeyOfARunningSwapIsKept(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		req := launcherapi.SwapRequest{GPUUUIDs: []string{"g0"}, In: &launcherapi.SwapIn{Args: []string{"model"}}}
		first, err := w.Begin(req, "k")
		require.NoError(t, err)
		synctest.Wait()
		dry := requestForNew("x", "g1")
		dry.DryRun = true
		for n := range maxKeys {
			r, err := w.Begin(dry, fmt.Sprint("d", n))
			require.NoError(t, err)
			_, _ = r.Wait(t.Context())
		}
		again, err := w.Begin(req, "k")
		require.NoError(t, err)
		assert.Equal(t, first.ID(), again.ID(), "one swap for one key")
		close(w.gates.busy)
	})
}

// stuck is Records that cannot remove any record.
type stuck struct{ *paper }

func (stuck) Remove(string) error { return errors.New("the disk is read-only") }

func TestSwapWithUnremovableRecordStaysOverAfterRestart(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		written := newPaper(t)
		w.records = w.writes.Writer(stuck{written}, w.noteWriteFailed)
		r := w.begin(requestForNew("n", "g0"))
		_, err := r.Wait(t.Context())
		require.NoError(t, err)
		w.tasks.Wait()
		_, err = w.sup.Sleep("n", launcher.VerbRequest{})
		require.NoError(t, err)
		synctest.Wait()

		found, err := written.Read()
		require.NoError(t, err)
		require.Len(t, found, 1)
		left, err := ReadSaved(found[0])
		require.NoError(t, err)
		w.records = w.writes.Writer(written, w.noteWriteFailed)
		w.Recover([]Saved{left})
		w.tasks.Wait()
		synctest.Wait()
		assert.Equal(t, "sleeping", w.state("n"), "nothing is undone of it")
		now, err := written.Read()
		require.NoError(t, err)
		assert.Empty(t, now)
	})
}
