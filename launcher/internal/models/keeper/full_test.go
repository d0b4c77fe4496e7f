package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

func TestFullDiskAndMissingPermissionHaveDifferentErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "models")
	require.NoError(t, modelstore.Mark(dir))
	wants := filepath.Join(dir, "wants")
	require.NoError(t, os.MkdirAll(wants, 0o700))
	smalldisk.Mount(t, wants, 20)
	k, _ := newKeeperIn(t, "right", dir)
	m, err := k.Pull(t.Context(), launcherapi.ModelRequest{URI: "x://m", WantedBy: "pool"})
	require.NoError(t, err)
	await(t, k, m.ID, launcherapi.ModelReady)
	refused := func(code, cause string) {
		t.Helper()
		for _, r := range []launcherapi.ModelRequest{
			{URI: "x://m", WantedBy: "other"}, {URI: "x://m", WantedBy: "pool", UnlessThere: true},
		} {
			_, err := k.Pull(t.Context(), r)
			var told *launcher.Error
			require.ErrorAs(t, err, &told)
			assert.Equal(t, code, told.Code, told.Detail)
			assert.Equal(t, cause, told.FailureCause)
			assert.Contains(t, told.Detail, wants)
		}
	}
	smalldisk.Fill(t, wants)
	refused(launcherapi.CodeStorage, fetchapi.ReasonCapacityExceeded)
	require.NoError(t, unix.Mount("", wants, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	refused(launcherapi.CodeNoAccess, "")
	_, err = k.Remove(t.Context(), m.ID, "pool")
	assert.Equal(t, launcherapi.CodeNoAccess, launcher.CodeOf(err), "%v", err)
}

func TestStoreThatCannotBeMarkedIsStillListed(t *testing.T) {
	dir := t.TempDir()
	for cause, listed := range map[error]bool{unix.EACCES: true, unix.EPERM: true, unix.EROFS: true, unix.ENOSPC: true, unix.EDQUOT: true, unix.EIO: false} {
		err := fmt.Errorf("cannot mark the model store: %w", cause)
		assert.Equal(t, listed, mayOnlyRead(err, dir), cause)
		assert.False(t, mayOnlyRead(err, filepath.Join(dir, "missing")), cause)
	}
}
