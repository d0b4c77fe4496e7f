package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAProgramIsCopiedIntoAFolderInThePlaceOfAnOlderOne(t *testing.T) {
	program, folder := filepath.Join(t.TempDir(), "launcher"), t.TempDir()
	require.NoError(t, os.WriteFile(program, []byte("a newer one"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "launcher"), []byte("an older one"), 0o600))
	require.NoError(t, copyTo(program, folder))

	made, err := os.ReadFile(filepath.Join(folder, "launcher"))
	require.NoError(t, err)
	assert.Equal(t, "a newer one", string(made))
	info, err := os.Stat(filepath.Join(folder, "launcher"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestACopyThatCannotBeMadeNamesTheFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	require.ErrorContains(t, copyTo("/proc/self/exe", missing), missing)
	require.ErrorContains(t, copyTo(missing, t.TempDir()), missing)
}
