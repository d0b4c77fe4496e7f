package statedir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func openDir(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// mark is the mark of a folder, with what the records of instances say.
func mark(t *testing.T, d *Dir, recorded ...string) string {
	t.Helper()
	m, err := d.Mark(recorded)
	require.NoError(t, err)
	require.Regexp(t, marks, m)
	return m
}

func TestMarkIsKeptForTheNextLauncher(t *testing.T) {
	d := openDir(t, filepath.Join(t.TempDir(), "state"))
	kept := mark(t, d)
	assert.NotEqual(t, kept, mark(t, d), "nobody can guess it")
	require.NoError(t, d.KeepMark(kept))
	assert.Equal(t, kept, mark(t, d))
	file := filepath.Join(d.path, markFile)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "others cannot read it")
	require.NoError(t, os.Remove(file))
	require.NoError(t, d.KeepMark(kept))
	assert.Equal(t, kept, mark(t, d), "it is written again when it is gone")
}

func TestCopyOfAFolderHasAMarkOfItsOwn(t *testing.T) {
	first := openDir(t, filepath.Join(t.TempDir(), "state"))
	kept := mark(t, first)
	require.NoError(t, first.KeepMark(kept))
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(copied, os.DirFS(first.path)))
	second := openDir(t, copied)
	own := mark(t, second, kept)
	assert.NotEqual(t, kept, own)
	require.NoError(t, second.KeepMark(own))
	assert.Equal(t, own, mark(t, second, kept))
}

func TestMovedFolderKeepsItsMark(t *testing.T) {
	parent := t.TempDir()
	d, err := Open(filepath.Join(parent, "a"))
	require.NoError(t, err)
	kept := mark(t, d)
	require.NoError(t, d.KeepMark(kept))
	require.NoError(t, d.Close())
	require.NoError(t, os.Rename(filepath.Join(parent, "a"), filepath.Join(parent, "b")))
	assert.Equal(t, kept, mark(t, openDir(t, filepath.Join(parent, "b"))))
}

func TestLostMarkIsTheLastRecordedOneOfTheFolder(t *testing.T) {
	d := openDir(t, filepath.Join(t.TempDir(), "state"))
	first, last, foreign := mark(t, d), mark(t, d), mark(t, openDir(t, filepath.Join(t.TempDir(), "other")))
	assert.Equal(t, last, mark(t, d, first, last, foreign, "", "0123456789ab"))
	for _, text := range []string{"", "\n", "0123", "../../victim", strings.Repeat("A", 32), first + first, first + "\nx"} {
		require.NoError(t, os.WriteFile(filepath.Join(d.path, markFile), []byte(text), 0o600))
		m, err := d.Mark([]string{last})
		require.ErrorContains(t, err, "holds something else", "%q", text)
		assert.Equal(t, last, m)
	}
}

func TestNameThatLeadsElsewhereIsRefused(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "state"))
	for _, name := range []string{"", "..", "../a", "a/b", "/a"} {
		require.ErrorContains(t, r.Put(name, note{"x"}), "is not the name of a file", "%q", name)
		require.ErrorContains(t, r.Doubt(name), "is not the name of a file", "%q", name)
		require.ErrorContains(t, r.Remove(name), "is not the name of a file", "%q", name)
	}
	all, err := r.Read()
	require.NoError(t, err)
	assert.Empty(t, all)
}

func TestLinkInThePlaceOfAFileIsNotFollowed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d := openDir(t, dir)
	r, err := d.Records("things")
	require.NoError(t, err)
	other := mark(t, openDir(t, filepath.Join(t.TempDir(), "other")))
	for name, use := range map[string]func() error{
		lockFile:             func() error { _, err := Open(dir); return err },
		markFile:             func() error { _, err := d.keptMark(); return err },
		markFile + spare:     func() error { return d.KeepMark(other) },
		"things/" + spare:    func() error { return r.Put("a", note{"x"}) },
		"things/b" + current: func() error { return damage(t, r) },
		"things/b" + doubted: func() error { return damage(t, r) },
	} {
		victim, path := filepath.Join(t.TempDir(), "victim"), filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
		_ = os.Remove(path)
		require.NoError(t, os.Symlink(victim, path))
		require.ErrorContains(t, use(), "too many levels of symbolic links", name)
		text, err := os.ReadFile(victim)
		require.NoError(t, err)
		assert.Equal(t, "precious", string(text), name)
		_ = os.Remove(path)
	}
}

// damage is that of the one record that cannot be read.
func damage(t *testing.T, r *Records) error {
	t.Helper()
	all, err := r.Read()
	require.NoError(t, err)
	for _, f := range all {
		if f.Damage != nil {
			return f.Damage
		}
	}
	return nil
}
