package schedules

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatCannotBeCompiledIsFoundWithoutABuild(t *testing.T) {
	c, err := newChecker([]string{"."})
	require.NoError(t, err)
	d := Defects{Dirs: []string{"."}}
	whole := NewDefect("whole", "for n := len(steps) - 1;", "for n := len(steps) - 2;")
	unused := NewDefect("unused", "for n := len(steps) - 1;", "m := 0\n for n := len(steps) - 1;")
	require.NoError(t, c.check(d.edited(t, whole)))
	require.ErrorContains(t, c.check(d.edited(t, unused)), "declared and not used: m")
	apart, err := filepath.Abs("compile_test.go")
	require.NoError(t, err)
	require.ErrorContains(t, c.check(map[string]string{apart: "no code"}), "is built without "+apart)
	elsewhere, err := filepath.Abs("testdata/none.go")
	require.NoError(t, err)
	assert.ErrorContains(t, c.check(map[string]string{elsewhere: ""}), "is no package")
}
