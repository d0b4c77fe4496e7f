package modelstore

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

// On NFS, for example, a removed file that is open somewhere stays.
func TestTrashThatCannotBeFreedStopsNothing(t *testing.T) {
	dir := t.TempDir()
	reopen(t, dir)
	busy := filepath.Join(dir, stagingDir, trashPrefix+"x", "busy")
	require.NoError(t, os.MkdirAll(busy, 0o755))
	t.Run("while it cannot be freed", func(t *testing.T) {
		smalldisk.Mount(t, busy, 20)
		s := open(t, Options{Dir: dir})
		v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
		require.NoError(t, s.Remove(v.Key, ""))
		used, err := s.Used()
		require.NoError(t, err)
		assert.Zero(t, used)
	})
	reopen(t, dir)
	assert.NoDirExists(t, busy)
}

// A fetch whose files cannot be removed is over all the same.
func TestFetchThatCannotBeFreedIsGivenUp(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 10})
	m, _ := manifest("x://m", "1", map[string]string{"a": "weights"})
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	busy := filepath.Join(f.Staging(), "busy")
	require.NoError(t, os.MkdirAll(busy, 0o755))
	if err := unix.Mount("none", busy, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("NOT TESTED: ONLY ROOT CAN MAKE A FOLDER THAT CANNOT BE REMOVED: %v", err)
	}
	t.Cleanup(func() {
		left, err := filepath.Glob(filepath.Join(s.dir, stagingDir, "*", "busy"))
		assert.NoError(t, err)
		for _, busy := range left { // where it is by now
			assert.NoError(t, unix.Unmount(busy, unix.MNT_DETACH))
		}
	})
	require.NoError(t, f.GiveUp(true))
	all, err := s.Versions()
	require.NoError(t, err)
	assert.Empty(t, all)
	put(t, s, "x://m", "1", map[string]string{"a": "weights"})
}

// A container's image may bring models along.
func TestStoreInALayerOfAnImageIsChanged(t *testing.T) {
	image, upper, dir := t.TempDir(), t.TempDir(), t.TempDir()
	s, err := Open(Options{Dir: image})
	require.NoError(t, err)
	removed, damaged, evicted := put(t, s, "hf://org/removed", "c1", map[string]string{"a": "removed"}), put(t, s, "hf://org/damaged", "c1", twoFiles), put(t, s, "x://evicted", "1", map[string]string{"a": "evicted"})
	require.NoError(t, s.Close())
	require.NoError(t, unix.Mount("none", upper, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(upper, unix.MNT_DETACH)) })
	for _, name := range []string{"upper", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(upper, name), 0o755))
	}
	layers := "lowerdir=" + image + ",upperdir=" + upper + "/upper,workdir=" + upper + "/work"
	if err := unix.Mount("overlay", dir, "overlay", 0, layers); err != nil {
		t.Skipf("NOT TESTED: NO OVERLAYFS CAN BE MOUNTED: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })

	s = open(t, Options{Dir: dir, Limit: 20, Retention: LRU})
	require.NoError(t, s.Remove(removed.Key, ""))
	require.NoError(t, os.Remove(filepath.Join(s.Files(damaged.Key), "config.json")))
	put(t, s, "hf://org/damaged", "c1", twoFiles)
	require.NoError(t, s.Verify(damaged.Key))
	want(t, s, damaged, "main", "pool", damaged.Published)
	f, err := s.Admit(first(manifest("x://large", "1", map[string]string{"a": "0123456789"})), Want{})
	require.NoError(t, err)
	require.Len(t, f.Evicted, 1)
	assert.Equal(t, evicted.Key, f.Evicted[0].Key)
	require.NoError(t, f.GiveUp(true))
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, 9, used)
}

// copied copies a store as cp does, with the times of files or without.
func copied(t *testing.T, from string, times bool) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	require.NoError(t, filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(from, path)
		require.NoError(t, err)
		target := filepath.Join(to, name)
		info, err := e.Info()
		require.NoError(t, err)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case e.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			require.NoError(t, err)
			return os.Symlink(link, target)
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(target, text, 0o644))
		if times {
			return os.Chtimes(target, info.ModTime(), info.ModTime())
		}
		return nil
	}))
	return to
}

func TestCopiedStoreIsMendedWithoutItsSource(t *testing.T) {
	original := t.TempDir()
	s, err := Open(Options{Dir: original})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	other := put(t, s, "hf://org/other", "c0ffee", map[string]string{"a": "other"})
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: copied(t, original, false)})
	got, _ := s.Version(v.Key)
	require.ErrorContains(t, got.Damage, "launcher models --verify reads it")
	require.NoError(t, s.Mend(t.Context(), v.Key))
	require.NoError(t, os.WriteFile(filepath.Join(s.Files(other.Key), "a"), []byte("OTHER"), 0o644))
	require.ErrorContains(t, s.Verify(other.Key), "its file a has the sha256")
	m, _ := manifest("hf://org/name", "c0ffee", twoFiles)
	_, err = s.Admit(m, Want{})
	require.ErrorIs(t, err, ErrThere)
	got, _ = s.Version(other.Key)
	require.Error(t, got.Damage)
	require.NoError(t, s.Remove(other.Key, ""))
	require.NoError(t, s.Remove(v.Key, ""))
	assert.Empty(t, leftBelow(t, s, modelsDir, blobsDir))
}

func TestMendEndsWithItsContext(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	file := filepath.Join(s.Files(v.Key), "config.json")
	require.NoError(t, os.Chmod(file, 0o600))
	changed := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file, changed, changed))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Mend(ctx, v.Key), context.Canceled)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.True(t, info.ModTime().Equal(changed), "it was not read")

	large := filepath.Join(t.TempDir(), "large") // it takes minutes to read
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, 1<<38))
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = (&Reader{dir: filepath.Dir(large)}).hashFile(ctx, large)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Without its links, a store has each file once for itself and once more as a blob.
func TestLimitCountsTheFilesOfACopiedStore(t *testing.T) {
	original := t.TempDir()
	s, err := Open(Options{Dir: original})
	require.NoError(t, err)
	put(t, s, "x://one", "1", map[string]string{"a": "0123456789"})
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: copied(t, original, true), Limit: 15})
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, 10, used)
	m, _ := manifest("x://two", "1", map[string]string{"a": "9876543210"})
	_, err = s.Admit(m, Want{})
	var full *CapacityError
	require.ErrorAs(t, err, &full)
	s.retention = LRU
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	require.Len(t, f.Evicted, 1)
	assert.EqualValues(t, 10, f.Evicted[0].Bytes)
}

// leftBelow returns the files below folders of a store.
func leftBelow(t *testing.T, s *Store, dirs ...string) (names []string) {
	t.Helper()
	for _, dir := range dirs {
		for name := range below(t, filepath.Join(s.dir, dir)) {
			if !strings.HasSuffix(name, "/") {
				names = append(names, filepath.Join(dir, name))
			}
		}
	}
	return names
}

func TestUmaskHidesNoModel(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755|fs.ModeSetgid))
	s := open(t, Options{Dir: dir})
	v := putRef(t, s, "hf://org/name", "c0ffee", "main", twoFiles)
	want(t, s, v, "main", "pool", v.Published)
	require.NoError(t, user(t, s, "u").Lease(v.Key, "instance a"))
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		if e.Name() == lockFile || e.Name() == leaseLock {
			return nil
		}
		info, err := os.Stat(path)
		require.NoError(t, err)
		rights := fs.FileMode(0o444)
		if e.IsDir() {
			rights = 0o555
		}
		assert.Equal(t, rights, info.Mode()&rights, path)
		assert.Equal(t, e.IsDir(), info.Mode()&fs.ModeSetgid != 0, "the group of the folder above stays: %s", path)
		return nil
	}))
}
