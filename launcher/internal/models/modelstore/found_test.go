package modelstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/modelref"
)

// means returns the commit that a ref of the model org/name means.
func means(t *testing.T, s *Store, ref string) string {
	t.Helper()
	v, err := s.Wanted("org/name", ref, modelref.Lacks)
	require.NoError(t, err)
	return v.Manifest.Revision
}

func TestInvalidRefsAreNotFollowedAndStopNothing(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim", "file")
	require.NoError(t, os.MkdirAll(filepath.Dir(victim), 0o755))
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o644))
	s, err := Open(Options{Dir: filepath.Join(dir, "store")})
	require.NoError(t, err)
	v := putRef(t, s, "hf://org/name", "aaaa", "main", twoFiles)
	for _, ref := range []string{"../../../../victim", "..", ".", "/victim", "a//b", "a\x00b", strings.Repeat("x", 300)} {
		require.ErrorContains(t, s.Want(Want{Key: v.Key, URI: v.Manifest.URI, Ref: ref, Since: time.Now()}), "cannot be the name of a version", "%q", ref)
	}
	for name, text := range map[string]string{ // as an earlier launcher may have written them
		strings.Repeat("a", 32): `{"id": "` + v.Key + `", "uri": "hf://org/name", "ref": "../../../../victim"}`,
		strings.Repeat("b", 32): `{"id": "` + v.Key + `", "uri": "hf://org/name", "ref": "` + strings.Repeat("x", 300) + `"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, wantsDir, name), []byte(text), 0o644))
	}
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: filepath.Join(dir, "store")})
	assert.Equal(t, "aaaa", means(t, s, "main"))
	exported(t, s, v.Key, filepath.Join(dir, "hub", "cache"))
	shown, err := os.ReadDir(filepath.Join(dir, "hub", "cache", "models--org--name", hubRefs))
	require.NoError(t, err)
	assert.Len(t, shown, 1)
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
}

// An empty file is in many models, so its blob has many names.
func TestFileWithTooManyLinksIsSharedAllTheSame(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	first := put(t, s, "x://first", "1", map[string]string{"a": "shared"})
	var err error
	for n := 0; err == nil; n++ {
		if n == 200_000 {
			t.Skip("NOT TESTED: THIS FILE SYSTEM TAKES AS MANY NAMES OF A FILE AS THERE ARE")
		}
		err = os.Link(s.blob(first.Manifest.Files[0].SHA256), filepath.Join(s.dir, fmt.Sprint("name", n)))
	}
	require.ErrorIs(t, err, unix.EMLINK)
	second := put(t, s, "hf://org/second", "c1", map[string]string{"b": "shared"})
	for _, v := range []Version{first, second} {
		require.NoError(t, s.Verify(v.Key))
	}
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, 2*len("shared"), used, "the names before keep the old file")
	require.NoError(t, s.Remove(second.Key, ""))
	require.NoError(t, s.Verify(first.Key))
	left, err := os.ReadDir(filepath.Join(s.dir, stagingDir))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestDamagedLeaseIsDroppedAndStopsNothing(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "aaaa", twoFiles)
	require.NoError(t, user(t, s, "u").Lease(v.Key, "instance a"))
	empty, folder := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for _, dir := range []string{leasesDir, wantsDir} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, dir, empty), nil, 0o644))
		require.NoError(t, os.MkdirAll(filepath.Join(s.dir, dir, folder, "x"), 0o755))
	}
	holders, err := s.Holders(v.Key)
	require.NoError(t, err)
	assert.Equal(t, []string{"instance a of u"}, holders)
	_, err = s.Versions()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	for _, dir := range []string{leasesDir, wantsDir} {
		assert.NoFileExists(t, filepath.Join(s.dir, dir, empty))
		assert.DirExists(t, filepath.Join(s.dir, dir, folder, "x"), "no store makes a folder there")
	}
	require.ErrorContains(t, s.Remove(v.Key, ""), "instance a of u")
}

func TestMovedBranchIsServedAfterClockWasAhead(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	ahead := time.Now().Add(24 * time.Hour)
	first := putRef(t, s, "hf://org/name", "aaaa", "main", twoFiles)
	for _, path := range []string{s.version(first.Key), filepath.Join(s.version(first.Key), markFile)} {
		require.NoError(t, os.Chtimes(path, ahead, ahead))
	}
	want(t, s, first, "main", "", ahead)
	second := putRef(t, s, "hf://org/name", "bbbb", "main", map[string]string{"config.json": "{}"})
	want(t, s, second, "main", "", time.Now())
	v, err := s.Wanted("org/name", "", modelref.Lacks)
	require.NoError(t, err)
	assert.Equal(t, second.Key, v.Key)
}

func TestUnmarkedModelIsRemovedUnlessAnInstanceReadsIt(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	gone := put(t, s, "hf://org/name", "aaaa", map[string]string{"config.json": "{}"})
	read := put(t, s, "hf://org/read", "bbbb", map[string]string{"model.safetensors": "weights"})
	require.NoError(t, user(t, s, "u").Lease(read.Key, "instance a"))
	for _, v := range []Version{gone, read} {
		require.NoError(t, os.Remove(filepath.Join(s.version(v.Key), markFile)))
	}
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, len("weights"), used)
	assert.FileExists(t, filepath.Join(s.Files(read.Key), "model.safetensors"))
	assert.NoDirExists(t, s.version(gone.Key))
}
