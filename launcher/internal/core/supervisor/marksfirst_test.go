package supervisor

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSwapIsRefusedIfItsClaimCannotBeSaved(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("out", "0.4")
		r.records.failing(syscall.ENOSPC)
		out := toDo(launcher.Plan{SwapID: "s", Out: []string{"out"}})
		_, err := r.tryClaim(out)
		require.ErrorIs(t, err, syscall.ENOSPC)
		assert.Equal(t, launcherapi.CodeStorage, launcher.CodeOf(err))
		assert.True(t, remembered(t, r).Instances[0].Doubted)
		r.records.failing(nil)
		c := r.claims(out)
		written := remembered(t, r).Instances[0]
		assert.Equal(t, "s", written.SwapID)
		assert.False(t, written.Doubted)
		c.Release()
	})
}
