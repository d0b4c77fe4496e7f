package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Another user of the store may put links into the folder that a file is fetched into, or in
// its place.
func TestLinksInTheStagingFolderAreNotFollowed(t *testing.T) {
	for name, at := range map[string]string{
		"the folder":           "",
		"a part":               partName("a"),
		"the note of a part":   partName("a") + ".note",
		"the next note":        partName("a") + ".note.new",
		"the hashes":           hashesFile,
		"the file to be named": hashOf(content),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim, precious := filepath.Join(dir, "victim"), filepath.Join(dir, "victim", "precious")
			require.NoError(t, os.Mkdir(victim, 0o755))
			require.NoError(t, os.WriteFile(precious, []byte("100"), 0o600))
			f := of(t, &scripted{content: content}, content)
			if at == hashesFile {
				f.Manifest.Files[0].SHA256 = ""
			}
			f.Staging = filepath.Join(dir, "staging")
			require.NoError(t, os.Mkdir(f.Staging, 0o700))
			left(t, f, make([]byte, 500_000), 500_000) // it is wrong, so it is begun anew
			target := precious
			if at == "" {
				target = victim
			}
			require.NoError(t, os.RemoveAll(filepath.Join(f.Staging, at)))
			require.NoError(t, os.Symlink(target, filepath.Join(f.Staging, at)))
			_, _ = f.Run(t.Context()) // it may fail
			if at == "" {
				require.Error(t, DropParts(f.Staging))
			} else {
				require.NoError(t, DropParts(f.Staging))
			}
			text, err := os.ReadFile(precious)
			require.NoError(t, err)
			assert.Equal(t, "100", string(text))
			entries, err := os.ReadDir(victim)
			require.NoError(t, err)
			assert.Len(t, entries, 1)
		})
	}
}
