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
		v, err := s.Wanted("org/name", "main", modelref.Lacks)
		require.NoError(t, err)
		assert.Equal(t, key, v.Key)
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
	meant, err := s.Wanted("org/name", "main", modelref.Lacks)
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
	_, there, err = s.Amend(name, Want{Holder: "pool", Retention: Keep}, takes)
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
		there, err := s.WantThere(by("second"), false)
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

// privateWant is a want of the main branch that is private.
func privateWant(v Version, holder string) Want {
	return Want{Key: v.Key, URI: v.Manifest.URI, Ref: "main", Holder: holder, Private: true, Since: time.Now()}
}

func versionOf(t *testing.T, s *Store, key string) *Version {
	t.Helper()
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		if v.Key == key {
			return &v
		}
	}
	require.Fail(t, "there is no such version")
	return nil
}

func TestVersionStaysPrivateWithoutWants(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *Store, v Version){
		"its branch has moved": func(t *testing.T, s *Store, v Version) {
			require.NoError(t, s.Want(privateWant(v, "pool")))
			require.NoError(t, s.Want(privateWant(put(t, s, "hf://org/name", "bbbb", twoFiles), "pool")))
		},
		"its holder may not read it": func(t *testing.T, s *Store, v Version) {
			require.NoError(t, s.Want(privateWant(v, "pool")))
			require.NoError(t, s.Unwant(v.Key, "pool"))
		},
		"a person keeps it no more": func(t *testing.T, s *Store, v Version) {
			require.NoError(t, s.Want(privateWant(v, "pool")))
			require.NoError(t, s.Keep(v.Key, true))
			require.NoError(t, s.Remove(v.Key, "pool"))
			require.NoError(t, s.Keep(v.Key, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := Open(Options{Dir: dir})
			require.NoError(t, err)
			v := put(t, s, "hf://org/name", "aaaa", twoFiles)
			lose(t, s, v)
			require.NoError(t, s.Close())
			s = open(t, Options{Dir: dir})
			left := versionOf(t, s, v.Key)
			assert.Empty(t, left.Wants)
			assert.True(t, left.Private())
			_, _, there := s.Whole("hf://org/name@aaaa", modelref.Selection{})
			assert.False(t, there)
			by := Want{Key: v.Key, URI: v.Manifest.URI, Holder: "other", Since: time.Now()}
			_, err = s.WantThere(by, false)
			require.ErrorIs(t, err, ErrPrivate)
			require.NoError(t, s.Keep(v.Key, true))
			assert.True(t, versionOf(t, s, v.Key).Private(), "who keeps it opens it to nobody")
			_, err = s.WantThere(by, true)
			require.NoError(t, err)
			require.NoError(t, s.Keep(v.Key, false))
			require.NoError(t, s.Unwant(v.Key, "other"))
			assert.NoFileExists(t, s.leftFile(v.Key), "its source has let a caller read it for all")
		})
	}
}

// An earlier release did not note that a version without wants was private.
func TestVersionWithoutWantsIsAsPrivateAsItsModel(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	old, secret := put(t, s, "hf://org/name", "aaaa", twoFiles), put(t, s, "hf://org/name", "bbbb", twoFiles)
	other := put(t, s, "hf://org/other", "aaaa", twoFiles)
	require.NoError(t, s.Want(privateWant(secret, "pool")))
	assert.True(t, versionOf(t, s, old.Key).Private())
	assert.False(t, versionOf(t, s, other.Key).Private())
	want(t, s, secret, "main", "other", time.Now())
	assert.False(t, versionOf(t, s, old.Key).Private(), "its source needs no right")
}

// The fetch is admitted, and its want is not recorded yet.
func TestJoiningAnUnwantedFetchTakesAProofOfRight(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, _ := manifest("hf://org/name", "aaaa", twoFiles)
	f, err := s.Admit(m, Want{Private: true})
	require.NoError(t, err)
	_, err = s.WantThere(Want{Key: m.Key(), URI: m.URI, Holder: "other"}, false)
	require.ErrorIs(t, err, ErrPrivate)
	require.NoError(t, f.GiveUp(true))
}

// In this test no want says yet whether the version is private.
func TestWhoJoinsAnyFetchBeforeItsWantProvesItsRight(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, _ := manifest("hf://org/name", "aaaa", twoFiles)
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	require.False(t, f.MustProve, "its own caller needs no proof")
	_, err = s.WantThere(Want{Key: m.Key(), URI: m.URI, Holder: "other"}, false)
	require.ErrorIs(t, err, ErrPrivate)
	require.NoError(t, f.GiveUp(true))
}

// A holder wants the version for all since an earlier fetch, which ended early. This fetch takes
// files of a private version, so its caller has to prove its right, and so has each that joins.
func TestJoiningAFetchBeforeItsProofTakesAProofToo(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	m, _ := manifest("hf://org/name", "bbbb", twoFiles)
	require.NoError(t, s.Want(Want{Key: m.Key(), URI: m.URI, Holder: "first", Since: time.Now()}))
	secret := put(t, s, "hf://org/secret", "aaaa", twoFiles)
	require.NoError(t, s.Want(privateWant(secret, "pool")))
	f, err := s.Admit(m, Want{Holder: "second"})
	require.NoError(t, err)
	require.True(t, f.MustProve)
	_, err = s.WantThere(Want{Key: m.Key(), URI: m.URI, Holder: "third"}, false)
	require.ErrorIs(t, err, ErrPrivate)
	require.NoError(t, f.GiveUp(true))
}

// A version that was private is fetched again, for all.
func TestProvedFetchRemovesTheNoteThatItsVersionIsPrivate(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "aaaa", twoFiles)
	require.NoError(t, s.Want(privateWant(v, "pool")))
	require.NoError(t, s.Unwant(v.Key, "pool"))
	require.FileExists(t, s.leftFile(v.Key))
	require.NoError(t, os.Remove(filepath.Join(s.Files(v.Key), "config.json")))

	m, content := manifest("hf://org/name", "aaaa", twoFiles)
	by := Want{Key: m.Key(), URI: m.URI, Holder: "other", Since: time.Now()}
	f, err := s.Admit(m, by)
	require.NoError(t, err)
	require.True(t, f.MustProve)
	require.NoError(t, f.Want(by))
	require.FileExists(t, s.leftFile(v.Key), "nothing is proved yet")
	putFiles(t, f, content)
	_, err = f.Publish(m)
	require.NoError(t, err)
	assert.NoFileExists(t, s.leftFile(v.Key))
	require.NoError(t, s.Unwant(v.Key, "other"))
	assert.False(t, versionOf(t, s, v.Key).Private(), "its source has let a caller read it for all")
}

// A release before the note reads it as a want.
func TestEarlierReleasesReadAPrivateNoteAsNobodysWant(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	v := put(t, s, "hf://org/name", "aaaa", twoFiles)
	require.NoError(t, s.Want(privateWant(v, "pool")))
	require.NoError(t, s.Unwant(v.Key, "pool"))
	note, err := readWant(s.leftFile(v.Key))
	require.NoError(t, err)
	note.Left = false // which that release does not know
	earlier := Version{Wants: []Want{note}}
	assert.True(t, earlier.Private())
	assert.Empty(t, earlier.Retention())
	assert.Empty(t, earlier.WantedBy())
	assert.Empty(t, earlier.Refs()[""])
}

// A fetch takes files of a private version that nobody wants any more only with a right to it.
func TestFetchTakesNoFilesOfAVersionWithoutWants(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	put(t, s, "hf://org/name", "aaaa", twoFiles)
	m, _ := manifest("hf://org/name", "bbbb", twoFiles)
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	assert.True(t, f.MustProve)
	require.NoError(t, f.GiveUp(true))
}

// The want of a caller who has not proved its right yet opens a private version to nobody.
func TestWantOfAFetchIsPrivateUntilItsCallersProof(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	secret := put(t, s, "hf://org/secret", "aaaa", twoFiles)
	require.NoError(t, s.Want(privateWant(secret, "pool")))
	m, _ := manifest("hf://org/name", "bbbb", twoFiles)
	by := Want{Key: m.Key(), URI: m.URI, Holder: "other", Since: time.Now()}
	for _, proves := range []bool{false, true} {
		f, err := s.Admit(m, by)
		require.NoError(t, err)
		require.True(t, f.MustProve)
		require.NoError(t, f.Want(by))
		third := Want{Key: m.Key(), URI: m.URI, Holder: "third"}
		_, err = s.WantThere(third, false)
		require.ErrorIs(t, err, ErrPrivate)
		if !proves {
			require.NoError(t, f.GiveUp(false))
			of, err := s.wantsOf(m.Key())
			require.NoError(t, err)
			require.Len(t, of, 1)
			assert.True(t, of[0].Private)
			continue
		}
		_, err = f.Publish(m)
		require.NoError(t, err)
		there, err := s.WantThere(third, false)
		require.NoError(t, err)
		assert.True(t, there)
	}
}

// A want that the holder has changed during the fetch is not opened at its end.
func TestWantChangedDuringTheFetchStaysAsItIs(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	put(t, s, "hf://org/secret", "aaaa", twoFiles)
	m, _ := manifest("hf://org/name", "bbbb", twoFiles)
	by := Want{Key: m.Key(), URI: m.URI, Ref: "main", Holder: "other", Since: time.Now()}
	f, err := s.Admit(m, by)
	require.NoError(t, err)
	require.NoError(t, f.Want(by))
	newer := put(t, s, "hf://org/name", "cccc", map[string]string{"config.json": "{}"})
	by.Key, by.Private = newer.Key, true
	require.NoError(t, s.Want(by))
	v, err := f.Publish(m)
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, wantedBy(t, s, newer.Key), "the branch has moved since")
	assert.True(t, versionOf(t, s, newer.Key).Private())
	assert.True(t, versionOf(t, s, v.Key).Private())
}

// Want records that a version is wanted, as a fetch or a call does.
func (s *Store) Want(w Want) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want(w)
}
