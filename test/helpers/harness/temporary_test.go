package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFoldersOfProcessesThatAreGoneAreRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	mine, err := Folder("test-")
	require.NoError(t, err)
	unmarked, err := os.MkdirTemp("", "test-")
	require.NoError(t, err)

	child := exec.Command("cat")
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	owner, err := identity(strconv.Itoa(child.Process.Pid))
	require.NoError(t, err)
	folders := map[string]string{}
	for name, of := range map[string]string{"child": owner, "elsewhere": "pid:[1] 1 1", "unreadable": "x"} {
		folders[name], err = os.MkdirTemp("", "test-")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folders[name], ownerFile), []byte(of), 0o600))
	}
	another := func() {
		_, err := Folder("test-")
		require.NoError(t, err)
	}
	another()
	assert.DirExists(t, folders["child"], "it runs")

	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
	another()
	assert.NoDirExists(t, folders["child"])
	for _, dir := range []string{mine, unmarked, folders["elsewhere"], folders["unreadable"]} {
		assert.DirExists(t, dir)
	}
}
