package supervisor

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestWhatASwapHasClaimedAndCouldNotBeWrittenIsWrittenLaterOrRefused(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("out", "0.4")
		r.records.failing(syscall.ENOSPC)
		_, err := r.Enlist("s", r.everyGPU(), func(ledger.World, []launcherapi.Instance) (Intent, error) {
			return Intent{Out: []string{"out"}}, nil
		})
		require.NoError(t, err)
		require.ErrorIs(t, r.CatchUp(), syscall.ENOSPC)
		assert.True(t, remembered(t, r).Instances[0].Doubted)
		r.records.failing(nil)
		require.NoError(t, r.CatchUp())
		written := remembered(t, r).Instances[0]
		assert.Equal(t, "s", written.SwapID)
		assert.False(t, written.Doubted)
	})
}
