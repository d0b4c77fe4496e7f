package keeper

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/pagecachetest"
)

// listedPageCache returns what List says about main memory, for the only model.
func listedPageCache(t *testing.T, k *Keeper) string {
	t.Helper()
	list, err := k.List()
	require.NoError(t, err)
	require.Len(t, list.Models, 1)
	return list.Models[0].PageCache
}

func TestWatchersSeeModelsEnterAndLeaveMainMemory(t *testing.T) {
	k, _ := newKeeperIn(t, "right", filepath.Join(pagecachetest.Dir(t), "models"))
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m"})
	require.NoError(t, err)
	ready := func() bool {
		m, err = k.get(m.ID)
		require.NoError(t, err)
		return m.State == launcherapi.ModelReady
	}
	for changed := k.Changed(); !ready(); changed = k.Changed() {
		<-changed
	}
	assert.Equal(t, launcherapi.PageCacheWhole, listedPageCache(t, k), "what was just written is there still")
	pagecachetest.Evict(t, filepath.Join(m.Path, "a"))
	changed := k.Changed()
	k.lookOnceAtAll()
	<-changed
	assert.Equal(t, launcherapi.PageCacheNone, listedPageCache(t, k))
	_, err = k.Warm(t.Context(), m.ID)
	require.NoError(t, err)
	assert.Equal(t, launcherapi.PageCacheWhole, listedPageCache(t, k))

	_, err = k.Remove(t.Context(), m.ID, "")
	require.NoError(t, err)
	k.lookOnceAtAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	assert.Empty(t, k.held, "of what is gone nothing is kept")
}

func TestNineTenthsInMainMemoryCountAsWhole(t *testing.T) {
	for held, want := range map[int64]string{
		0: launcherapi.PageCacheNone, 9: launcherapi.PageCacheNone, 10: launcherapi.PageCachePart,
		89: launcherapi.PageCachePart, 90: launcherapi.PageCacheWhole, 100: launcherapi.PageCacheWhole,
	} {
		assert.Equal(t, want, share(held, 100), "%d of 100", held)
	}
	assert.Equal(t, launcherapi.PageCacheNone, share(0, 7))
}
