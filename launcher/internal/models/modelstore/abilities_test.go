package modelstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/smalldisk"
)

// withoutLinks opens a store whose file system has no hard links: from one mount to another
// there are none.
func withoutLinks(t *testing.T, o Options) *Store {
	t.Helper()
	o.Dir = t.TempDir()
	reopen(t, o.Dir)
	blobs := filepath.Join(o.Dir, blobsDir)
	smalldisk.Mount(t, blobs, 20)
	s := open(t, o)
	require.False(t, s.hasLinks)
	return s
}

func TestWithoutHardLinksEachVersionHasItsOwnFiles(t *testing.T) {
	s := withoutLinks(t, Options{})
	text := map[string]string{"a": "weights", "b": "weights", "config.json": "{}"}
	one, two := put(t, s, "hf://org/one", "c1", text), put(t, s, "hf://org/two", "c1", text)
	for _, v := range []Version{one, two} {
		require.NoError(t, s.Verify(v.Key))
	}
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, 2*(7+7+2), used)
	blobs, err := os.ReadDir(filepath.Join(s.dir, blobsDir))
	require.NoError(t, err)
	assert.Empty(t, blobs)
	require.NoError(t, s.Remove(one.Key, ""))
	require.NoError(t, s.Verify(two.Key))
}

func TestWithoutHardLinksModelsAreEvictedToo(t *testing.T) {
	s := withoutLinks(t, Options{Limit: 20, Retention: LRU})
	put(t, s, "x://one", "1", map[string]string{"a": "0123456789"})
	put(t, s, "x://two", "1", map[string]string{"a": "0123456789"})
	m, content := manifest("x://three", "1", map[string]string{"a": "9876543210"})
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	assert.Len(t, f.Evicted, 1)
	putFiles(t, f, content)
	_, err = f.Publish(m)
	require.NoError(t, err)
}

func TestAbilitiesOfAFileSystemAreTriedWithoutLeftovers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	assert.True(t, s.hasLinks)
	for _, name := range []string{blobsDir, stagingDir} {
		left, err := os.ReadDir(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}
