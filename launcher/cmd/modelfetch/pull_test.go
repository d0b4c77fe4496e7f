package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLinkLeadsToTheModelThatWasPulledLast(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "fetched")
	for _, key := range []string{"first", "second"} {
		folder := filepath.Join(dir, "store", key)
		require.NoError(t, os.MkdirAll(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "model.gguf"), []byte(key), 0o600))
		require.NoError(t, relink(folder, link))
		text, err := os.ReadFile(filepath.Join(link, "model.gguf"))
		require.NoError(t, err)
		assert.Equal(t, key, string(text))
	}
	moved := filepath.Join(t.TempDir(), "moved") // as the volume may be mounted elsewhere
	require.NoError(t, os.Rename(dir, moved))
	assert.FileExists(t, filepath.Join(moved, "fetched", "model.gguf"))
}

func TestLinkReplacesNothingButLinks(t *testing.T) {
	dir := t.TempDir()
	ours := filepath.Join(dir, "ours")
	require.NoError(t, os.Mkdir(ours, 0o700))
	require.ErrorContains(t, relink(dir, ours), "no link")
	assert.DirExists(t, ours)
	assert.NoFileExists(t, ours+".new")
}
