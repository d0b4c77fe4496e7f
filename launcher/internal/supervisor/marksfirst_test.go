package supervisor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestASwapIsNotWrittenDownBeforeTheMarksOfWhatItMoves(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("out", "0.4")
		r.journal.failing(errors.New("no space left on device"))
		_, err := r.Enlist("s", r.everyGPU(), func(ledger.World, []launcherapi.Instance) (Intent, error) {
			return Intent{Out: []string{"out"}}, nil
		})
		require.NoError(t, err)
		swap := SavedSwap{ID: "s", Out: []string{"out"}}
		require.Error(t, r.WriteSwap(swap))
		r.journal.failing(nil) // there is room for the small record of the swap
		require.NoError(t, r.WriteSwap(swap))
		assert.Len(t, remembered(t, r).Swaps, 1, "else the next life of the launcher takes it for over, and out never wakes")
	})
}
