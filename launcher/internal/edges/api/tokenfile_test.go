package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/edges/api"
)

func TestATokenFileThatIsAPipeIsRefusedByItsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := api.OpenTokenFile(path)
	require.ErrorContains(t, err, path+" is not a regular file")
	require.ErrorContains(t, err, "write a token to it")
}

func TestATokenFileThatBecomesAPipeLetsNobodyInAndHoldsNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte("s3cret"), 0o600))
	token, err := api.OpenTokenFile(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer s3cret")
	require.ErrorContains(t, token.Allow(r), "cannot check tokens")
}

func TestATokenThatEverybodyMayReadIsFoundThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "token"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(path, []byte("s3cret"), 0o600))
	require.NoError(t, os.Symlink(path, link))
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o440: false, 0o644: true, 0o604: true} {
		require.NoError(t, os.Chmod(path, mode))
		token, err := api.OpenTokenFile(link)
		require.NoError(t, err)
		got, open, err := token.Exposed()
		require.NoError(t, err)
		assert.Equal(t, exposed, open, mode)
		assert.Equal(t, mode, got)
	}
}
