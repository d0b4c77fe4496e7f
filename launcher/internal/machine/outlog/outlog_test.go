package outlog_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/outlog"
)

func TestAnEngineWritesItsLogAfterTheLauncherClosedItsOwnDescriptor(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir})
	f, name, err := store.Create("tiny-a")
	require.NoError(t, err)
	engine := child(t, "lines", "1000")
	engine.Stdout, engine.Stderr = f, f
	require.NoError(t, engine.Start())
	require.NoError(t, f.Close())
	require.NoError(t, engine.Wait())

	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	assert.Equal(t, 1000, strings.Count(string(content), "\n"))
}

func TestTwoWritersOfOneLogDoNotOverwriteEachOther(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir})
	name, f := create(t, store, "a", "from the launcher\n")
	engine := child(t, "lines", "2")
	engine.Stdout = f
	require.NoError(t, engine.Run())
	write(t, f, "from the launcher again\n")

	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	assert.Equal(t, "from the launcher\nline 0\nline 1\nfrom the launcher again\n", string(content))
}

func TestNoteIsAppendedToALogThatExists(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir})
	name, f := create(t, store, "a", "from the engine\n")
	require.NoError(t, store.Note(name, "from the launcher"))
	write(t, f, "from the engine again\n")
	assert.Equal(t, "from the engine\nhotseat: from the launcher\nfrom the engine again\n", readAll(t, store, name))

	require.ErrorIs(t, store.Note("../a.1.log", "x"), fs.ErrNotExist)
	require.ErrorIs(t, store.Note("b.1.log", "x"), fs.ErrNotExist, "it makes no log")
	require.NoError(t, os.Symlink(filepath.Join(dir, name), filepath.Join(dir, "c.1.log")))
	require.Error(t, store.Note("c.1.log", "x"), "it follows no link")
}

func TestAnIDThatIsUsedAgainGetsANewFileAndTheOldOneStays(t *testing.T) {
	store := open(t, outlog.Options{})
	first, _ := create(t, store, "a", "one")
	second, _ := create(t, store, "a", "two")
	assert.NotEqual(t, first, second)
	assert.Equal(t, "one", readAll(t, store, first))
	assert.Equal(t, "two", readAll(t, store, second))
	latest, ok := store.Latest("a")
	assert.True(t, ok)
	assert.Equal(t, second, latest)
}

func TestLogsOfAnEarlierProcessAreFoundAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := outlog.Open(outlog.Options{Dir: dir})
	require.NoError(t, err)
	for range 11 { // ten and eleven sort before two by name
		_, f := create(t, first, "a.b", "text")
		require.NoError(t, f.Close())
	}
	require.NoError(t, first.Close())

	second := open(t, outlog.Options{Dir: dir})
	latest, ok := second.Latest("a.b")
	require.True(t, ok)
	assert.Equal(t, "a.b.11.log", latest)
	name, _ := create(t, second, "a.b", "")
	assert.Equal(t, "a.b.12.log", name)
	_, ok = second.Latest("a")
	assert.False(t, ok)
}

func TestAnIDOfAnyBytesIsOneFileInTheFolderAndIsFoundBack(t *testing.T) {
	dir := t.TempDir()
	store := open(t, outlog.Options{Dir: dir})
	for _, id := range []string{
		"tiny-a", "a.1", "a.1.log", "..", ".", "../../etc/passwd", "/etc/passwd", "a/b", `a\b`,
		"with space", "%2e%2e", "100%", "ünïcode", "\xff\xfe", "nul\x00byte", "line\nend", "-rf",
	} {
		name, _ := create(t, store, id, id)
		back, n, ok := outlog.ParseName(name)
		assert.True(t, ok, name)
		assert.Equal(t, id, back)
		assert.Equal(t, 1, n)
		assert.Equal(t, filepath.Base(name), name)
		assert.Equal(t, id, readAll(t, store, name))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 17)
}

func TestAnIDThatNoFileCanBeNamedAfterIsAnError(t *testing.T) {
	store := open(t, outlog.Options{})
	for _, id := range []string{"", strings.Repeat("x", 300)} {
		_, _, err := store.Create(id)
		assert.ErrorContains(t, err, "cannot create")
	}
}

func TestANameThatIsNotThatOfALogOpensNothing(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.1.log")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o600))
	store := open(t, outlog.Options{Dir: filepath.Join(dir, "logs")})
	for _, name := range []string{
		"", ".", "..", "../secret.1.log", secret, "logs/../../secret.1.log", "../plain",
		"a.log", "a.0.log", "a.01.log", "a.-1.log", "a.+1.log", "a.1.LOG", ".1.log", "a b.1.log", "%61.1.log", "a.1.log ", "a.99999999999999999999.log",
	} {
		_, _, ok := outlog.ParseName(name)
		assert.False(t, ok, name)
		_, err := store.Read(name, launcher.LogRange{})
		assert.ErrorIs(t, err, fs.ErrNotExist, name)
		_, err = store.Tail(name, 1, 100)
		assert.ErrorIs(t, err, fs.ErrNotExist, name)
		_, _, err = store.Watch(name)
		assert.ErrorIs(t, err, fs.ErrNotExist, name)
		assert.ErrorIs(t, store.Follow(t.Context(), name, 0, nil, nil), fs.ErrNotExist, name)
	}
}

func TestLogsAreReadableByTheirOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "logs")
	store := open(t, outlog.Options{Dir: dir})
	name, _ := create(t, store, "a", "")
	for path, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, filepath.Join(dir, name): 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode())
	}
}

func TestAFullDiskIsSaidClearlyAndALogCanBeMadeOnceThereIsRoom(t *testing.T) {
	out, err := inNamespaces(child(t, "full-disk", t.TempDir())).CombinedOutput()
	require.NoError(t, err, "namespaces could not be made: %s", out)
	assert.Equal(t, `a.1.log <nil>
a.2.log <nil>
 cannot create the log of instance "a": open DIR/a.3.log: no space left on device
 cannot create the log of instance "a": open DIR/a.3.log: no space left on device
a.3.log <nil>
`, replaceDir(string(out)))
}

// replaceDir puts DIR in the place of the temporary folder.
func replaceDir(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if from := strings.Index(line, "open /"); from >= 0 {
			to := strings.LastIndex(line, "/a.")
			lines[i] = line[:from] + "open DIR" + line[to:]
		}
	}
	return strings.Join(lines, "\n")
}

func TestWhereInotifyIsExhaustedTheErrorSaysWhatToRaise(t *testing.T) {
	out, err := inNamespaces(child(t, "no-inotify", t.TempDir())).CombinedOutput()
	require.NoError(t, err, "namespaces could not be made: %s", out)
	lines := strings.Split(string(out), "\n")
	require.Len(t, lines, 4, "%s", out)
	assert.Contains(t, lines[0], "fs.inotify.max_user_instances")
	assert.Contains(t, lines[1], "fs.inotify.max_user_watches")
	assert.Contains(t, lines[2], "fs.inotify.max_user_watches")
}

func TestAFolderThatCannotBeMadeIsAnErrorThatNamesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := outlog.Open(outlog.Options{Dir: filepath.Join(file, "logs")})
	assert.ErrorContains(t, err, file)
}

func TestAThousandInstancesLeaveNoDescriptorBehind(t *testing.T) {
	store := open(t, outlog.Options{})
	before := descriptors(t)
	for range 1000 {
		f, name, err := store.Create("a")
		require.NoError(t, err)
		write(t, f, "x")
		_, stop, err := store.Watch(name)
		require.NoError(t, err)
		readAll(t, store, name)
		_, err = store.Read(name, launcher.LogRange{First: 5})
		require.Error(t, err)
		stop()
		stop()
		require.NoError(t, f.Close())
	}
	assert.Equal(t, before, descriptors(t))
	assert.Zero(t, watches(t))
}
