package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// made runs a command in a folder and gives what it says on standard output.
func made(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s", said.String())
	return string(out)
}

// Whether a program is to be made again is for go build to say, which knows
// every file that goes into it; make must ask it where any of them has changed.
func TestMakeBuildSeesAChangeOfEveryEmbeddedFile(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	for _, name := range []string{"Makefile", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), content, 0o600))
	}
	for _, name := range []string{"launcher", "spec", "test"} {
		require.NoError(t, os.CopyFS(filepath.Join(tree, name), os.DirFS(filepath.Join("../..", name))))
	}
	require.NoError(t, os.Mkdir(filepath.Join(tree, "bin"), 0o700))
	programs := map[string]string{"launcher": "./launcher/cmd/launcher", "enginesim": "./test/enginesim"}
	for program := range programs {
		built := filepath.Join(tree, "bin", program)
		require.NoError(t, os.WriteFile(built, nil, 0o600))
		later := time.Now().Add(time.Hour)
		require.NoError(t, os.Chtimes(built, later, later), "it was built after all that is there was written")
	}
	for program, pkg := range programs {
		listed := made(t, tree, "go", "list", "-deps", "-f", `{{if and .Module (eq .Module.Path "hotseat.dev/hotseat")}}{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}`, pkg)
		files := strings.Fields(listed)
		require.NotEmpty(t, files, program)
		for _, file := range files {
			before, err := os.Stat(file)
			require.NoError(t, err)
			changed := time.Now().Add(2 * time.Hour)
			require.NoError(t, os.Chtimes(file, changed, changed))
			assert.Regexp(t, `go build .* `+pkg+`\n`, made(t, tree, "make", "--dry-run", "build", "VERSION=test"), "after a change of %s", file)
			require.NoError(t, os.Chtimes(file, before.ModTime(), before.ModTime()))
		}
	}
}
