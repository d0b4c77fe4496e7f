// Package pagecachetest has main memory give files up, for tests.
package pagecachetest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Dir is a folder on a disk: what a filesystem in main memory has is never given up.
// It is the test's own, or where that is in main memory one beside the test's package,
// and goes with the test.
func Dir(t *testing.T) string {
	t.Helper()
	if dir := t.TempDir(); !inMemory(t, dir) {
		return dir
	}
	dir, err := os.MkdirTemp(".", "testdata-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.False(t, inMemory(t, dir), "the folder for temporary files and this package are both in main memory: set TMPDIR to a folder on a disk")
	return dir
}

func inMemory(t *testing.T, dir string) bool {
	t.Helper()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}

// Evict has main memory give up what it holds of a file.
func Evict(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular(), "%s is no file", path)
	require.NoError(t, f.Sync(), "what is not on the disk yet is not given up")
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
