package keeper

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/pagecachetest"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestIncompleteModelIsNotWarmed(t *testing.T) {
	k, _ := newKeeper(t, "slow")
	_, err := k.Warm(t.Context(), "none")
	assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	_, err = k.Warm(t.Context(), m.ID)
	assert.Contains(t, []string{launcherapi.CodeConflict, launcherapi.CodeNotFound}, launcher.CodeOf(err), "%v", err)
}

// TestJoinedPullWarmsTheModel checks the want of a pull that joins a fetch. The pull that
// began the fetch does not ask for main memory.
func TestJoinedPullWarmsTheModel(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	k, _ := newKeeper(t, "once somebody writes to "+gate)
	said := make(logged, 10)
	k.opts.Logger = slog.New(slog.NewTextHandler(said, nil))
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "first"})
	require.NoError(t, err)
	joined, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "second", Warm: true})
	require.NoError(t, err)
	assert.Equal(t, m.ID, joined.ID)
	assert.Equal(t, launcherapi.ModelDownloading, joined.State)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for line := ""; !strings.Contains(line, "read a model into main memory"); {
		select {
		case line = <-said:
		case <-time.After(patience.Wait()):
			require.Fail(t, "nobody reads the model ahead")
		}
	}
}

// TestStartWarmsLastUsedModelsFirst has room in main memory for one of two models.
// Reading the second would push the first out.
func TestStartWarmsLastUsedModelsFirst(t *testing.T) {
	dir := filepath.Join(pagecachetest.Dir(t), "models")
	k, _ := newKeeperIn(t, "right", dir)
	for _, uri := range []string{"x://older", "x://later"} {
		m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: uri, WantedBy: "holder", Warm: true})
		require.NoError(t, err)
		for changed := k.Changed(); m.State != launcherapi.ModelReady; changed = k.Changed() {
			<-changed
			m, err = k.get(m.ID)
			require.NoError(t, err)
		}
	}
	require.NoError(t, k.Close())
	list, err := k.List()
	require.NoError(t, err)
	for _, m := range list.Models {
		pagecachetest.Evict(t, filepath.Join(m.Path, "a"))
	}
	k, _ = newKeeperWithRoom(t, "right", dir, func(held int64) (int64, error) { return int64(len("x://later")) + 3 - held, nil })
	for range 2 {
		k.warmWanted("")
		held := map[string]int64{}
		for _, m := range list.Models {
			held[m.URI] = *k.look(m.ID)
		}
		assert.Equal(t, map[string]int64{"x://later": int64(len("x://later")), "x://older": 0}, held)
	}
}

// logged is a writer that sends the lines of a log on a channel.
type logged chan string

func (l logged) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

func TestModelsAreWarmedOneByOneAndWaitersMayCancel(t *testing.T) {
	k, _ := newKeeper(t, "right")
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
