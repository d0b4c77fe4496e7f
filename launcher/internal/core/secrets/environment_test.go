package secrets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestAVariableThatNamesAFileHasItsContentAndIsHidden(t *testing.T) {
	vault := t.TempDir()
	file := filepath.Join(vault, "token")
	require.NoError(t, os.WriteFile(file, []byte("from-the-file\r\n"), 0o600))
	env, found, err := Environment(map[string]launcherapi.EnvValue{"A": {FromFile: file}, "B": {Value: "b"}, "DB_PASS": {Value: "pass-1"}}, []string{vault})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"A": "from-the-file", "B": "b", "DB_PASS": "pass-1"}, env)
	assert.Equal(t, "b [redacted] [redacted]", found.Hide("b from-the-file pass-1"))
}

func TestAFileIsReadOnlyFromTheFoldersThatAreAllowed(t *testing.T) {
	vault, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(vault, "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(vault, "pipe"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(vault, "long"), []byte(strings.Repeat("x", maxEnvFile+1)), 0o600))
	for path, why := range map[string]string{
		secret:                       "is outside the folders of env_file_dirs",
		filepath.Join(vault, "link"): "is outside the folders of env_file_dirs",
		filepath.Join(vault, "pipe"): "is not a regular file",
		filepath.Join(vault, "long"): "is longer than",
		vault:                        "is not a regular file",
		"token":                      "is not an absolute path",
	} {
		_, _, err := Environment(map[string]launcherapi.EnvValue{"A": {FromFile: path}}, []string{vault})
		assert.ErrorContains(t, err, why, path)
		assert.Equal(t, launcherapi.CodeInvalid, launcher.CodeOf(err))
	}
}

func TestTheSecretsOfAProcessAreFoundByWhatIsShownOfItsInstance(t *testing.T) {
	var x Set
	x.FindInProcess(launcherapi.InstanceSpec{EnvVars: map[string]launcherapi.EnvValue{
		"MINE": {FromFile: "/vault/mine"}, "DB_PASS": {Value: "[redacted]"}, "PLAIN": {Value: "plain"},
	}}, []string{"serve", "m", "--api-key", "sk-flag"}, []string{"MINE=from-the-file", "DB_PASS=pass-1", "PLAIN=plain", "OTHER=other"})
	assert.Equal(t, "[redacted] [redacted] [redacted] plain other", x.Hide("sk-flag from-the-file pass-1 plain other"))
}
