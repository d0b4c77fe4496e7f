package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLauncherCopiesItselfIntoAFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "launcher"), []byte("an older one"), 0o600))
	var errs bytes.Buffer
	require.Equal(t, exitOK, (&cli{out: &bytes.Buffer{}, err: &errs}).run(t.Context(), []string{"copy-to", dir}), errs.String())

	own, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	made, err := os.ReadFile(filepath.Join(dir, "launcher"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(own, made), "the copy is this program")
	info, err := os.Stat(filepath.Join(dir, "launcher"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestACopyIntoAFolderThatIsNotThereNamesIt(t *testing.T) {
	var errs bytes.Buffer
	missing := filepath.Join(t.TempDir(), "missing")
	require.Equal(t, exitFailed, (&cli{out: &bytes.Buffer{}, err: &errs}).run(t.Context(), []string{"copy-to", missing}))
	assert.Contains(t, errs.String(), missing)
}
