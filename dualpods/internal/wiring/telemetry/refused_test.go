package telemetry

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// refusingLauncher refuses every swap.
type refusingLauncher struct{ hotLauncher }

func (l *refusingLauncher) SwapOnce(context.Context, string, launcherapi.SwapRequest, func(launcherapi.SwapProgress)) (launcherapi.SwapResult, error) {
	return launcherapi.SwapResult{}, &launcher.Error{Code: launcherapi.CodeConflict, Detail: "no room", SwapID: "swap-2"}
}

func TestTraceNamesARefusedSwap(t *testing.T) {
	r := newReceiver(t)
	m, send := r.traced(t)
	uid := types.UID(uuid.NewString())
	m.Saw(on(uid, "swap not asked", decide.Swap))
	_, err := m.Launcher(&refusingLauncher{}).SwapOnce(forUID(t, uid), "key", launcherapi.SwapRequest{}, nil)
	require.Error(t, err)
	gone := on(uid, "leaving, released", decide.RemoveFinalizer)
	gone.Leaving = true
	m.Saw(gone)
	send()
	assert.Equal(t, "swap-2", attributesOf(r.span(t, "swap"))["hotseat.swap"])
}
