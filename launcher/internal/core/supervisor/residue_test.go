package supervisor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

func TestResidueShrinksWhenMemoryComesBackLate(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 70)
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		view, err := r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		require.Equal(t, 70*gib, view.GPUBytes["g0"], "it was waited for long enough")
		r.gpus.hold("g0", r.runner.tree("a").pid, 2)
		revision := r.opts.Feed.Revision()
		r.wakes("a")
		events, err := r.opts.Feed.Next(t.Context(), revision)
		require.NoError(t, err)
		assert.Equal(t, "sleeping", events[0].Object.State, "the watchers hear of it")
		assert.Equal(t, 2*gib, events[0].Object.GPUBytes["g0"])

		r.gpus.hold("g0", r.runner.tree("a").pid, 70)
		ask := r.toMake("s", "b")
		ask.Plan.GPUs, ask.GPUs = []string{"g0"}, []string{"g0"}
		ask.Plan.Room.Bytes["g0"] = 70 * gib
		c, err := r.Claim(ask)
		require.NoError(t, err, "a is expected to give its memory back when it leaves")
		assert.Equal(t, []string{"a"}, c.Plan().Out)
		c.Release()
	})
}

func TestUnlistedSleeperKeepsItsResidue(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awakeWith("a", 70)
		_, err := r.Sleep("a", launcher.VerbRequest{})
		require.NoError(t, err)
		_, err = r.AwaitState(t.Context(), "a", launcher.Sleeping)
		require.NoError(t, err)
		r.gpus.hold("g0", r.runner.tree("a").pid, 0)
		_, err = r.tryClaim(toDo(launcher.Plan{SwapID: "s"}))
		require.NoError(t, err)
		view, err := r.Get("a")
		require.NoError(t, err)
		assert.Equal(t, 70*gib, view.GPUBytes["g0"])
	})
}
