package modelsource

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
