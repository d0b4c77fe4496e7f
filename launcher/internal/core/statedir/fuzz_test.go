package statedir

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzAnyFileIsReadOrRefusedAndDoesNotTouchTheOthers(f *testing.F) {
	for _, text := range []string{"", "{", "null", `{"version":1,"record":{"text":"here"}}`, `{"version":2}`, `{"version":1,"record":null}`, `{"version":"1"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := open(t, t.TempDir())
		require.NoError(t, r.Put("good", note{"still here"}))
		require.NoError(t, os.WriteFile(r.path("any", current), text, 0o600))
		all, err := r.Read()
		if _, newer := errors.AsType[*VersionError](err); newer {
			return
		}
		require.NoError(t, err)
		require.Len(t, all, 2)
		assert.True(t, all[0].Damage != nil || len(all[0].Record) > 0)
		assert.NoError(t, all[1].Damage)
		content, err := os.ReadFile(r.path("any", current))
		require.NoError(t, err)
		assert.Equal(t, text, content)
	})
}
