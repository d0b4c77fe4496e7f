package statedir

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The record of an instance has about 2 KB.
var typical = note{strings.Repeat("x", 2000)}

func BenchmarkPut(b *testing.B) {
	state, err := Open(b.TempDir())
	require.NoError(b, err)
	defer state.Close()
	r, err := state.Records("things")
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, r.Put("a", typical))
	}
}

// BenchmarkAppend is the baseline: the same bytes go to the end of one open file.
func BenchmarkAppend(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "all"))
	require.NoError(b, err)
	defer f.Close()
	for b.Loop() {
		text, err := json.Marshal(typical)
		require.NoError(b, err)
		_, err = f.Write(text)
		require.NoError(b, err)
	}
}
