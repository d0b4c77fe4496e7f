package swap

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSwapIsNotUndoneWhenTheLeaverWasDeleted(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.awake("a", "g0")
		m.starts(func(context.Context) error { return errors.New("not yet") })
		w.gates.busy = make(chan struct{})
		request := requestForNew("b", "g0")
		request.Timeout = new(launcherapi.Duration)
		*request.Timeout = launcherapi.Duration(time.Minute)
		swap := w.begin(request)
		synctest.Wait()
		_, err := w.sup.Delete(t.Context(), "a")
		require.NoError(t, err)
		close(w.gates.busy)
		_, err = swap.Wait(t.Context())
		failed := asFailed(err)
		require.NotNil(t, failed)
		assert.Equal(t, []string{"a"}, failed.Result.Deleted)
		assert.Equal(t, launcherapi.OutcomeUndoFailed, failed.Result.Outcome, "a is not awake again")
		assert.ErrorContains(t, err, "a is gone: it was deleted")
	}, m.engines)
}
