package importswap

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
)

var update = flag.Bool("update", false, "write the golden files anew")

func env(name string) (string, bool) {
	value, set := map[string]string{"HOME": "/home/a", "TOKEN": "secret", "KEY": "k"}[name]
	return value, set
}

// Each *.yaml of testdata has its catalogue in the file *.hotseat, and what has no
// counterpart in *.notes.
func TestFilesBecomeCataloguesWithNotes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			c, notes, err := Import(data, env)
			require.NoError(t, err)
			var text strings.Builder
			for _, n := range notes {
				text.WriteString(n.String() + "\n")
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".hotseat", string(c.YAML()))
			golden(t, strings.TrimSuffix(file, ".yaml")+".notes", text.String())

			made := filepath.Join(t.TempDir(), "hotseat.yaml")
			require.NoError(t, os.WriteFile(made, c.YAML(), 0o600))
			read, err := catalogue.Load(made, catalogue.Machine{Engines: []string{"vllm", "llamacpp"}, Env: env})
			require.NoError(t, err)
			for _, change := range catalogue.Diff(c, read) {
				assert.Equal(t, catalogue.Same, change.Kind, change)
			}
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestRelativeProgramIsNoted(t *testing.T) {
	c, notes, err := Import([]byte("models: {a: {cmd: './serve -p ${PORT}'}}"), env)
	require.NoError(t, err)
	assert.Equal(t, []string{"./serve", "-p", "${PORT}"}, c.Commands[0].Program)
	assert.Equal(t, []Note{{"models.a.cmd", "./serve must become an absolute path, or a name on PATH"}}, notes)
}

func TestWhatIsNoFileOfLlamaSwapIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "it has no mapping of models", "models: [a]\n": "it has no mapping of models", "- x\n": "this is no configuration of llama-swap",
		"models: {a: [}\n": "this is no configuration of llama-swap",
	} {
		_, _, err := Import([]byte(text), env)
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzImport(f *testing.F) {
	for _, file := range []string{"testdata/whole.yaml", "testdata/matrix.yaml", "testdata/programs.yaml"} {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("models: {a: 5, b: {cmd: [x], env: 3, filters: [], ttl: x}}\nselectors: 3\nhooks: {on_startup: 3}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Import(data, env)
		if err == nil {
			_ = c.YAML()
		}
	})
}
