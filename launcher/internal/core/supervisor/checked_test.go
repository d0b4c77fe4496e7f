package supervisor

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

func TestEngineIsCheckedUntilItObeysOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.3")
		r.engine.sleep = func(context.Context) error { return errors.New("not now") }
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.ErrorContains(t, err, "not now")
		r.engine.sleep = nil
		for range 2 {
			r.asleep("a")
			r.wakes("a")
		}
		assert.Equal(t, []string{
			"sleep 1", "wake 1", // the first sleep fails, and the engine is rolled back
			"sleep 1", "wake 1",
			"sleep 1, unchecked", "wake 1, unchecked",
		}, r.engine.noted())
	})
}
