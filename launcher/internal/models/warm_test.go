package models

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAModelThatIsNotWholeIsNotReadAhead(t *testing.T) {
	k, _ := by(t, "slow")
	_, err := k.Warm(t.Context(), "none")
	assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	_, err = k.Warm(t.Context(), m.ID)
	assert.Contains(t, []string{launcherapi.CodeConflict, launcherapi.CodeNotFound}, launcher.CodeOf(err), "%v", err)
}

func TestOneModelIsReadAheadAtATimeAndWhoWaitsMayLeave(t *testing.T) {
	k, _ := by(t, "right")
	k.warming <- struct{}{} // another one is being read
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.Warm(ctx, "m")
	require.ErrorIs(t, err, context.Canceled)
	k.End()
	_, err = k.Warm(t.Context(), "m")
	assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(err), "%v", err)
	<-k.warming
}
