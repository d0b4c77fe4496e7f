package modelsource

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/modelref"
)

func TestSomeOfTheFilesOfASourceAreGiven(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.bin", "model.safetensors", "original/params.json"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	selected := func(include, exclude []string) (Source, *[]string) {
		whole, err := New("file://"+dir, Options{})
		require.NoError(t, err)
		var notes []string
		return Select(whole, modelref.Selection{Include: include, Exclude: exclude}.Clean(), func(text string) { notes = append(notes, text) }), &notes
	}
	s, notes := selected([]string{"*.safetensors", "*.json"}, []string{"original/", "*.gguf"})
	for range 2 { // as when the source has changed
		m, err := s.Resolve(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Check())
		assert.Equal(t, []string{"model.bin", "original/params.json"}, m.LeftOut)
		require.Len(t, m.Files, 2)
		for n, f := range m.Files {
			stream, err := s.Open(t.Context(), n, 0)
			require.NoError(t, err)
			text, err := io.ReadAll(stream)
			require.NoError(t, err)
			assert.Equal(t, f.Path, string(text))
			require.NoError(t, stream.Close())
		}
	}
	assert.Contains(t, *notes, "no file of file://"+dir+" matches --exclude *.gguf")

	for says, c := range map[string]struct{ include, exclude []string }{
		"matches --include *.gguf; it has config.json, model.bin, model.safetensors, original/params.json": {[]string{"*.json", "*.gguf"}, nil},
		"the selection --exclude * takes no file of":                                                       {nil, []string{"*"}},
		"the selection --include *.bin --exclude model* takes no file of":                                  {[]string{"*.bin"}, []string{"model*"}},
	} {
		s, _ := selected(c.include, c.exclude)
		_, err := s.Resolve(t.Context())
		require.ErrorContains(t, err, says)
	}
}

func TestWhatASelectionLeavesOutNeedNotBeReadable(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	resolve := func(s modelref.Selection) error {
		whole, err := New("file://"+dir, Options{})
		require.NoError(t, err)
		m, err := Select(whole, s.Clean(), func(text string) { t.Error(text) }).Resolve(t.Context())
		if err == nil {
			assert.Len(t, m.Files, 1)
		}
		return err
	}
	require.NoError(t, resolve(modelref.Selection{Exclude: []string{"dangling", "pipe"}}))
	require.NoError(t, resolve(modelref.Selection{Include: []string{"*.json"}}))
	require.ErrorContains(t, resolve(modelref.Selection{}), "leave it out by --exclude dangling")
	require.ErrorContains(t, resolve(modelref.Selection{Exclude: []string{"dangling"}}), "leave it out by --exclude pipe")

	entries, err := os.ReadDir(dir) // root reads every folder
	require.NoError(t, err)
	folderEntry := entries[slices.IndexFunc(entries, fs.DirEntry.IsDir)]
	for pattern, out := range map[string]bool{"lost+found/": true, "lost*": true, "lost+found": true, "*": true, "lost+found/a": false, "other/": false} {
		f := &folder{selection: modelref.Selection{Exclude: []string{pattern}}.Clean(), excused: map[string]bool{}}
		err := f.excuse("lost+found", folderEntry, fs.ErrPermission)
		if out {
			require.ErrorIs(t, err, fs.SkipDir, pattern)
			continue
		}
		require.ErrorIs(t, err, fs.ErrPermission, pattern)
		require.ErrorContains(t, err, "leave it out by --exclude lost+found/", pattern)
	}
}
