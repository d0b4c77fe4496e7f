package fswatch

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUntilLooksBeforeAndAfterEachChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	looks := 0
	require.NoError(t, Until(t.Context(), dir, func() bool {
		looks++
		_, err := os.Stat(file)
		if looks == 1 {
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NoError(t, os.WriteFile(file, nil, 0o600)) // which the watch, that is there by now, sees
		}
		return looks > 1 && err == nil
	}))
	require.Greater(t, looks, 1)
}

func TestUntilEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := Until(ctx, t.TempDir(), func() bool { cancel(); return false })
	require.ErrorIs(t, err, context.Canceled)
}

func TestUntilSaysThatThereIsNoSuchPath(t *testing.T) {
	err := Until(t.Context(), filepath.Join(t.TempDir(), "gone"), func() bool { t.Error("nothing is watched"); return true })
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "cannot watch")
}
