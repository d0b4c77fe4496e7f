package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestInotifyLimitIsRaisedAndNeverLowered(t *testing.T) {
	for before, after := range map[string]string{"128\n": "1024", "8192\n": "8192\n", "odd\n": "odd\n"} {
		setting := filepath.Join(t.TempDir(), "max_user_instances")
		require.NoError(t, os.WriteFile(setting, []byte(before), 0o600))
		var said strings.Builder
		allowInotify(setting, &said)
		text, err := os.ReadFile(setting)
		require.NoError(t, err)
		assert.Equal(t, after, string(text))
		assert.Equal(t, before != after, said.Len() > 0, said.String())
	}
	allowInotify(filepath.Join(t.TempDir(), "none"), &strings.Builder{})
}
