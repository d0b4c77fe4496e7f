package statedir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nobody is another user.
const nobody = 65534

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: ONLY ROOT CAN GIVE A FOLDER TO ANOTHER USER")
	}
}

func TestNewFolderIsForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, Check(dir), "a folder that is missing")
	require.NoError(t, Prepare(dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestFolderThatOthersCouldUseIsRefused(t *testing.T) {
	for what, c := range map[string]struct {
		make   func(t *testing.T, parent string) (dir string)
		reason string
		inPod  bool // it is refused in a Pod too
		root   bool // only root can make it
	}{
		"everybody may write to it": {func(t *testing.T, parent string) string {
			t.Helper()
			return folder(t, parent, 0o777, 0)
		}, "others may write to it (mode 0777)", true, false},
		"everybody may write to it, sticky": {func(t *testing.T, parent string) string {
			t.Helper()
			return folder(t, parent, 0o777|os.ModeSticky, 0)
		}, "others may write to it", true, false},
		"it belongs to another user": {func(t *testing.T, parent string) string {
			t.Helper()
			return folder(t, parent, 0o755, nobody)
		}, "it belongs to user 65534, and the launcher runs as user 0", true, true},
		"something in it belongs to another user": {func(t *testing.T, parent string) string {
			t.Helper()
			dir := folder(t, parent, 0o700, 0)
			link := filepath.Join(dir, lockFile)
			require.NoError(t, os.Symlink("/victim", link))
			require.NoError(t, os.Lchown(link, nobody, nobody))
			return dir
		}, "lock in it belongs to user 65534", true, true},
		"it is another user's link": {func(t *testing.T, parent string) string {
			t.Helper()
			link := filepath.Join(parent, "link")
			require.NoError(t, os.Symlink(folder(t, parent, 0o700, 0), link))
			require.NoError(t, os.Lchown(link, nobody, nobody))
			return link
		}, "link on its way belongs to user 65534", false, true},
		"another user's link leads to it": {func(t *testing.T, parent string) string {
			t.Helper()
			link := filepath.Join(parent, "link")
			require.NoError(t, os.Symlink(folder(t, parent, 0o700, 0), link))
			require.NoError(t, os.Lchown(link, nobody, nobody))
			return filepath.Join(link, "state") // nothing is created there
		}, "link on its way belongs to user 65534", false, true},
		"it is in a folder of another user": {func(t *testing.T, parent string) string {
			t.Helper()
			return folder(t, folder(t, parent, 0o755, nobody), 0o700, 0)
		}, "on its way belongs to user 65534", false, true},
		"it is in a folder that everybody may write to": {func(t *testing.T, parent string) string {
			t.Helper()
			return folder(t, folder(t, parent, 0o777, 0), 0o700, 0)
		}, "could replace the folder", false, false},
		"its group is not its owner's own": {func(t *testing.T, parent string) string {
			t.Helper()
			dir := folder(t, parent, 0o775, 0)
			require.NoError(t, os.Chown(dir, 0, nobody))
			return dir
		}, "others may write to it (mode 0775)", true, true},
	} {
		t.Run(what, func(t *testing.T) {
			if c.root {
				asRoot(t)
			}
			dir := c.make(t, t.TempDir())
			before := names(t, dir)
			_, err := Open(dir)
			var wrong *FolderError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, dir, wrong.Dir)
			assert.ErrorContains(t, err, c.reason)
			assert.ErrorContains(t, err, "--state-dir", "it says what to do")
			assert.Equal(t, before, names(t, dir), "nothing is created")
			t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
			if err := Check(dir); c.inPod {
				assert.ErrorAs(t, err, &wrong)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

func TestFoldersThatNobodyElseCouldUseAreTaken(t *testing.T) {
	parent := t.TempDir()
	sticky := folder(t, parent, 0o777|os.ModeSticky, 0)
	in := folder(t, sticky, 0o700, 0)
	link := filepath.Join(sticky, "link")
	require.NoError(t, os.Symlink("../"+filepath.Base(sticky)+"/"+filepath.Base(in), link))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(in, "logs")), "a link of one's own")
	for _, dir := range []string{in, link, filepath.Join(link, "new"), folder(t, parent, 0o750, 0)} {
		require.NoError(t, Prepare(dir), dir)
	}
	if os.Getegid() == os.Geteuid() {
		require.NoError(t, Prepare(folder(t, parent, 0o775, 0)), "umask 002")
	}
}

func TestLinksInACircleAreRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(link, link))
	require.ErrorContains(t, Prepare(link), "too many levels of symbolic links")
}

// folder makes a folder of a user with a mode; user 0: this one.
func folder(t *testing.T, parent string, mode os.FileMode, user int) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "folder")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, mode))
	if user != 0 {
		require.NoError(t, os.Chown(dir, user, user))
	}
	return dir
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
