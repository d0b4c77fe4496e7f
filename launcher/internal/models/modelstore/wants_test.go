package modelstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// want records a want of a version.
func want(t *testing.T, s *Store, v Version, ref, holder string, since time.Time) {
	t.Helper()
	require.NoError(t, s.Want(Want{Key: v.Key, URI: v.Manifest.URI, Ref: ref, Holder: holder, Since: since}))
}

func wantedBy(t *testing.T, s *Store, key string) []string {
	t.Helper()
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		if v.Key == key {
			return v.WantedBy()
		}
	}
	return nil
}

func TestVersionIsRemovedWithItsLastHolder(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "", "b", time.Now())
	want(t, s, v, "main", "a", time.Now())
	want(t, s, v, "main", "a", time.Now())
	assert.Equal(t, []string{"a", "b"}, wantedBy(t, s, v.Key))
	var wanted *WantedError
	require.ErrorAs(t, s.Remove(v.Key, ""), &wanted)
	assert.Equal(t, []string{"a", "b"}, wanted.Holders)
	require.NoError(t, s.Remove(v.Key, "a"))
	assert.Equal(t, []string{"b"}, wantedBy(t, s, v.Key))
	require.NoError(t, s.Remove(v.Key, "nobody"), "who does not want it leaves it to those who do")
	require.NoError(t, s.Verify(v.Key))
	require.NoError(t, s.Remove(v.Key, "b"))
	assert.NoDirExists(t, s.version(v.Key))
	left, err := os.ReadDir(filepath.Join(s.dir, wantsDir))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestUnwantKeepsTheVersion(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "", "a", time.Now())
	want(t, s, v, "main", "a", time.Now())
	want(t, s, v, "main", "b", time.Now())
	require.NoError(t, s.Unwant(v.Key, "a"))
	assert.Equal(t, []string{"b"}, wantedBy(t, s, v.Key))
	require.NoError(t, s.Unwant(v.Key, "b"))
	require.NoError(t, s.Verify(v.Key))
}

func TestVersionPulledByPersonOutlivesItsHolders(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "main", "", time.Now())
	want(t, s, v, "main", "a", time.Now())
	require.NoError(t, s.Remove(v.Key, "a"))
	require.NoError(t, s.Verify(v.Key))
	require.NoError(t, s.Remove(v.Key, ""))
	assert.NoDirExists(t, s.version(v.Key))
}

func TestLeaseKeepsVersionFromItsLastHolderToo(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "main", "a", time.Now())
	require.NoError(t, user(t, s, "x").Lease(v.Key, "instance i"))
	var used *InUseError
	require.ErrorAs(t, s.Remove(v.Key, "a"), &used)
	assert.Equal(t, []string{"a"}, wantedBy(t, s, v.Key), "it is wanted until it is gone")
}

func TestBranchMeansItsLastWantedVersion(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	now := time.Now()
	first := putRef(t, s, "hf://org/name", "aaaa", "main", twoFiles)
	byCommit := put(t, s, "hf://org/name", "bbbb", map[string]string{"config.json": "{}"})
	shows := func(key string) {
		t.Helper()
		v, err := s.Wanted("org/name", "main")
		require.NoError(t, err)
		assert.Equal(t, key, v.Key)
		text, err := os.ReadFile(filepath.Join(s.HubCache(), "models--org--name", "refs", "main"))
		require.NoError(t, err)
		assert.Equal(t, v.Manifest.Revision, string(text))
	}
	shows(first.Key)
	want(t, s, byCommit, "main", "a", now.Add(time.Second))
	shows(byCommit.Key)
	want(t, s, first, "main", "", now.Add(2*time.Second)) // the branch was moved back
	shows(first.Key)
	found, err := s.Find("org/name@main")
	require.ErrorContains(t, err, "may be any of", "%v", found.Key)
}

func TestRemovalOfUnfetchedVersionDropsItsWant(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, _ := manifest("x://m", "1", twoFiles)
	for _, holder := range []string{"a", "b", ""} {
		require.NoError(t, s.Want(Want{Key: m.Key(), URI: m.URI, Holder: holder, Since: time.Now()}))
	}
	for _, holder := range []string{"a", ""} {
		var none *NotFoundError
		require.ErrorAs(t, s.Remove(m.Key(), holder), &none)
	}
	v := put(t, s, "x://m", "1", twoFiles)
	assert.Equal(t, []string{"b"}, wantedBy(t, s, v.Key))
}

func TestDamagedWantStopsNoOther(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "main", "a", time.Now())
	want(t, s, Version{Key: "gone", Manifest: v.Manifest}, "other", "a", time.Now())
	damaged := filepath.Join(dir, wantsDir, strings.Repeat("d", 32))
	require.NoError(t, os.WriteFile(damaged, []byte(`{"id": "`), 0o600))
	assert.Equal(t, []string{"a"}, wantedBy(t, s, v.Key))
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	assert.Equal(t, []string{"a"}, wantedBy(t, s, v.Key))
	left, err := os.ReadDir(filepath.Join(dir, wantsDir))
	require.NoError(t, err)
	assert.Len(t, left, 1, "neither the damaged one nor that of a version of which there is nothing")
}

// takes accepts every manifest.
func takes(*fetchapi.Manifest) error { return nil }

func TestAmendMovesNoNameToTheVersion(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	now := time.Now().Add(-time.Hour)
	first, second := put(t, s, "hf://org/name", "aaaa", twoFiles), put(t, s, "hf://org/name", "bbbb", map[string]string{"config.json": "{}"})
	want(t, s, first, "main", "pool", now)
	want(t, s, second, "main", "other", now.Add(time.Second)) // since the branch has moved
	name := modelref.Name{Model: "hf://org/name"}
	v, there, err := s.Amend(name, Want{Holder: "pool", Retention: LRU, Warm: true}, takes)
	require.NoError(t, err)
	require.True(t, there)
	assert.Equal(t, first.Key, v.Key)
	meant, err := s.Wanted("org/name", "main")
	require.NoError(t, err)
	assert.Equal(t, second.Key, meant.Key, "nobody has asked for the first by that name since")
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		if v.Key == first.Key {
			assert.Equal(t, []string{"pool"}, v.LRUBy())
			assert.Equal(t, []string{"pool"}, v.WarmBy())
		}
	}
	_, there, err = s.Amend(name, Want{Holder: "pool", Retention: Default}, takes)
	require.NoError(t, err)
	require.True(t, there)
	_, there, err = s.Amend(name, Want{Holder: "pool"}, takes)
	require.NoError(t, err)
	require.True(t, there)
	assert.Equal(t, []string{"pool"}, wantedBy(t, s, first.Key))
}

func TestAmendIgnoresBranchesOfOtherHolders(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "aaaa", twoFiles)
	want(t, s, v, "v2", "pool", time.Now())
	want(t, s, v, "main", "", time.Now())
	for name, held := range map[string]bool{"hf://org/name": false, "hf://org/name@main": false, "hf://org/name@v2": true, "hf://org/name@aaaa": true, "hf://org/name@v3": false} {
		_, there, err := s.Amend(modelref.Name{Model: name}, Want{Holder: "pool"}, takes)
		require.NoError(t, err)
		assert.Equal(t, held, there, name)
	}
}

func TestAmendAndRemovalDoNotOverlap(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "c0ffee", twoFiles)
	want(t, s, v, "main", "pool", time.Now())
	_, there, err := s.Amend(modelref.Name{Model: "org/name"}, Want{Holder: "pool"}, func(*fetchapi.Manifest) error {
		assert.False(t, s.mu.TryLock(), "who removes it waits")
		return nil
	})
	require.NoError(t, err)
	assert.True(t, there)
}

// If a server names no version, the key is known only after the whole fetch.
func TestWantsFollowVersionKnownOnlyAfterFetch(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, content := manifest("x://m", "", map[string]string{"a": "weights"})
	key := m.Key()
	by := func(holder string) Want { return Want{Key: key, URI: m.URI, Holder: holder, Since: time.Now()} }
	f, err := s.Admit(m, by("first"))
	require.NoError(t, err)
	join := func() {
		t.Helper()
		there, err := s.WantThere(by("second"))
		require.NoError(t, err)
		assert.True(t, there)
	}
	join()
	var wanted *WantedError
	require.ErrorAs(t, s.Remove(key, ""), &wanted)
	assert.Equal(t, []string{"first", "second"}, wanted.Holders)
	require.NoError(t, s.Remove(key, "third"), "who does not want it leaves it to those who do")
	require.NoError(t, s.Remove(key, "second"))
	join()
	require.NoError(t, s.Remove(key, "first"))
	putFiles(t, f, content)
	m.Revision = "1"
	v, err := f.Publish(m)
	require.NoError(t, err)
	assert.Equal(t, []string{"second"}, wantedBy(t, s, v.Key))
	require.NoError(t, s.Remove(v.Key, "second"))
	left, err := os.ReadDir(filepath.Join(s.dir, wantsDir))
	require.NoError(t, err)
	assert.Empty(t, left)

	m.Revision = ""
	f, err = s.Admit(m, by("first"))
	require.NoError(t, err)
	putFiles(t, f, content)
	m.Revision = "1"
	v, err = f.Publish(m)
	require.NoError(t, err)
	assert.Equal(t, []string{"first"}, wantedBy(t, s, v.Key))
}
