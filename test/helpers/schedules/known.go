package schedules

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// knownFile names for each defect a seed that showed it when somebody looked last, a line
// each: the seed, a space and the defect's name. It spares most searches. A seed that does not
// show its defect any more, after a change of the simulation or of the code, is looked for anew.
const knownFile = "testdata/seeds.txt"

// readKnown reads the seeds by the names of their defects; none where there is no file.
func readKnown(t *testing.T, path string) map[string]uint64 {
	t.Helper()
	known := map[string]uint64{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return known
	}
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		seed, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		known[name], err = strconv.ParseUint(seed, 10, 63)
		require.NoError(t, err, "%s: this line should be a seed, a space and the name of a defect: %s", path, line)
	}
	return known
}

// writeKnown writes the seeds of defects that there are.
func (d *Defects) writeKnown(t *testing.T, path string, known map[string]uint64) {
	t.Helper()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d.has(name) {
			fmt.Fprintf(&text, "%d %s\n", known[name], name)
		}
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
}
