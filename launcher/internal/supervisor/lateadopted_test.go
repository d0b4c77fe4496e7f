package supervisor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAnAdoptedInstanceDoesNotSayThatItIsNotAdopted(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		memory.Instances[0].Reason = "started by exec: no preloader fits"
		fresh, hard := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		hard.unadopted = 2
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		require.Contains(t, view.Reason, "could not be adopted")
		ctx, stop := context.WithTimeout(t.Context(), 10*longestRetry)
		defer stop()
		view, _ = fresh.Await(ctx, "a", func(i launcherapi.Instance) bool { return i.Reason == memory.Instances[0].Reason })
		assert.Equal(t, "started by exec: no preloader fits", view.Reason)
	})
}
