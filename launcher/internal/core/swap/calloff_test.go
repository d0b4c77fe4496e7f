package swap

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestCancelledWaitingSwapIsRefusedAndOthersGoOn(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		w.gates.busy = make(chan struct{})
		first, err := w.Begin(requestForNew("b", "g0"), "first")
		require.NoError(t, err)
		synctest.Wait()
		second, err := w.Begin(requestForNew("c", "g0"), "second")
		require.NoError(t, err)
		third, err := w.Begin(requestForNew("d", "g0"), "third")
		require.NoError(t, err)
		synctest.Wait()

		_, err = w.CallOff("first")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "it has begun")
		_, err = w.CallOff("fourth")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		off, err := w.CallOff("second")
		require.NoError(t, err)
		assert.Equal(t, second.ID(), off.ID())
		result, err := second.Wait(t.Context())
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
		assert.ErrorContains(t, err, "cancelled")
		assert.Equal(t, launcherapi.OutcomeRefused, result.Outcome)

		close(w.gates.busy)
		_, err = first.Wait(t.Context())
		require.NoError(t, err)
		_, err = third.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"sleeping", "sleeping", "gone", "awake"}, []string{w.state("a"), w.state("b"), w.state("c"), w.state("d")})
		_, err = w.CallOff("third")
		assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err), "it is over")
		again, err := w.Begin(requestForNew("c", "g0"), "second")
		require.NoError(t, err)
		_, err = again.Wait(t.Context())
		assert.ErrorContains(t, err, "cancelled", "the key keeps its answer")
	})
}

func TestSwapCancelledBeforeItCameIsRefused(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		_, err := w.CallOff("late")
		assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		for range 2 {
			_, err = w.Begin(requestForNew("b", "g0"), "late")
			assert.Equal(t, launcherapi.CodeConflict, launcher.CodeOf(err))
			assert.ErrorContains(t, err, "cancelled before it arrived")
		}
		assert.Equal(t, []string{"awake", "gone"}, []string{w.state("a"), w.state("b")})
		for n := range maxKeys { // cancelled unknown keys are remembered up to maxKeys only
			_, err := w.CallOff(strconv.Itoa(n))
			assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
		}
		assert.Len(t, w.cancelledEarly, maxKeys)
		r, err := w.Begin(requestForNew("b", "g0"), "late")
		require.NoError(t, err)
		_, err = r.Wait(t.Context())
		require.NoError(t, err)
	})
}

func TestSwapCancelledBeforeItsTurnClaimsNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r, err := w.newRunFor("s", requestForNew("c", "g0"))
		require.NoError(t, err)
		require.NoError(t, r.cancel())
		r.admitAndExecute(t.Context())
		r.finish()
		_, err = r.Wait(t.Context())
		assert.ErrorContains(t, err, "cancelled")
		done, err := w.Begin(requestForNew("c", "g0"), "")
		require.NoError(t, err)
		_, err = done.Wait(t.Context())
		require.NoError(t, err, "its id, its place and its turn are free")
	})
}
