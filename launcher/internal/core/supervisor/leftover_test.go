package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestDeleteOfUnendableLeftoversIsAnswered(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.9")
		memory := remembered(t, r)
		memory.Instances[0].State = launcher.Failed
		r.runner.found = []process.Found{{Name: "a", PIDs: []int{firstPID + 7}}}
		fresh, _ := nextLife(t, r)
		defer fresh.Close(context.Background(), false)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		_, err := fresh.Delete(ctx, "a")
		assert.Equal(t, launcherapi.CodeEngineTimeout, launcher.CodeOf(err), "%v", err)
		view, err := fresh.Get("a")
		require.NoError(t, err)
		assert.Contains(t, view.Reason, "its processes do not end")
	})
}
