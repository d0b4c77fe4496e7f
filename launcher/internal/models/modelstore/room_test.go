package modelstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// sized returns the content of a model with one file of that many bytes.
func sized(name string, bytes int) map[string]string {
	return map[string]string{"w": name + strings.Repeat(".", bytes-len(name))}
}

// usedAt sets the last use and the publication of a version to a time.
func usedAt(t *testing.T, s *Store, v Version, when time.Time) {
	t.Helper()
	for _, path := range []string{filepath.Join(s.version(v.Key), markFile), s.version(v.Key)} {
		require.NoError(t, os.Chtimes(path, when, when))
	}
}

// idleSince puts a model of that many bytes into the store. It was last used that many
// hours ago, and has no wants.
func idleSince(t *testing.T, s *Store, name string, bytes, hours int) Version {
	t.Helper()
	v := put(t, s, "x://"+name, "1", sized(name, bytes))
	usedAt(t, s, v, time.Now().Add(-time.Duration(hours)*time.Hour))
	return v
}

// there returns the names of the whole models.
func there(t *testing.T, s *Store) (names []string) {
	t.Helper()
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		if v.Damage == nil {
			require.NoError(t, s.Verify(v.Key))
			names = append(names, strings.TrimPrefix(v.Manifest.URI, "x://"))
		}
	}
	return names
}

// admit admits a model of that many bytes, gives the fetch up, and returns the names of
// the evicted models.
func admit(t *testing.T, s *Store, bytes int, w Want) (evicted []string, err error) {
	t.Helper()
	m, _ := manifest("x://new", "1", sized("new", bytes))
	f, err := s.Admit(m, w)
	if err != nil {
		return nil, err
	}
	for _, v := range f.Evicted {
		evicted = append(evicted, strings.TrimPrefix(v.Manifest.URI, "x://"))
	}
	require.NoError(t, f.GiveUp(true))
	return evicted, nil
}

func TestOnlyLeastRecentlyUsedModelsAreEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		gone  []string
	}{
		"it fits":                               {10, nil},
		"the leftovers of a fetch are enough":   {20, nil},
		"one model is enough":                   {60, []string{"third"}},
		"the least recently used is not enough": {61, []string{"second"}},
		"two models are needed":                 {120, []string{"third", "second"}},
		"all models are needed":                 {200, []string{"third", "second", "first"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir(), Limit: 200, Retention: LRU})
			idleSince(t, s, "first", 60, 1)
			idleSince(t, s, "third", 40, 3)
			idleSince(t, s, "second", 80, 2)
			m, _ := manifest("x://broken-off", "1", sized("broken-off", 10))
			f, err := s.Admit(m, Want{})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(f.Staging(), "part"), make([]byte, 10), 0o600))
			require.NoError(t, f.GiveUp(false))
			gone, err := admit(t, s, c.bytes, Want{})
			require.NoError(t, err)
			assert.Equal(t, c.gone, gone)
			assert.Len(t, there(t, s), 3-len(c.gone))
		})
	}
}

func TestReleaseAndWantCountAsUse(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 40, Retention: LRU})
	a, b := idleSince(t, s, "a", 10, 4), idleSince(t, s, "b", 10, 3)
	c, d := idleSince(t, s, "c", 10, 2), idleSince(t, s, "d", 10, 1)
	u := user(t, s, "x")
	require.NoError(t, u.Lease(a.Key, "i"))
	require.NoError(t, u.Release("i"))
	want(t, s, b, "", "", time.Now().Add(-time.Minute))
	for _, next := range []Version{c, d, b, a} {
		gone, err := admit(t, s, 40-10*(len(there(t, s))-1), Want{})
		require.NoError(t, err)
		assert.Equal(t, []string{strings.TrimPrefix(next.Manifest.URI, "x://")}, gone)
	}
}

func TestKeptModelsAreNotEvictedNorOthersInVain(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		keep func(t *testing.T, s *Store, v Version)
	}{
		"an instance uses it": {"x://old (60 bytes), in use by instance i of x", func(t *testing.T, s *Store, v Version) {
			require.NoError(t, user(t, s, "x").Lease(v.Key, "instance i"))
		}},
		"a holder wants it": {"x://old (60 bytes), kept by pool-a", func(t *testing.T, s *Store, v Version) {
			want(t, s, v, "", "pool-a", time.Time{})
		}},
		"one holder keeps it, another allows eviction": {"kept by pool-a", func(t *testing.T, s *Store, v Version) {
			want(t, s, v, "", "pool-a", time.Time{})
			require.NoError(t, s.Want(Want{Key: v.Key, URI: v.Manifest.URI, Holder: "pool-b", Retention: LRU}))
		}},
		"a person keeps it": {"x://old (60 bytes), kept by a person (launcher models keep, or a call without wanted_by)", func(t *testing.T, s *Store, v Version) {
			want(t, s, v, "", "", time.Time{})
			require.NoError(t, s.Keep(v.Key, true))
			want(t, s, v, "", "", time.Time{}) // it is pulled again
		}},
		"a person keeps what nobody wants": {"x://old (60 bytes), kept by a person (launcher models keep, or a call without wanted_by)", func(t *testing.T, s *Store, v Version) {
			require.NoError(t, s.Keep(v.Key, true))
		}},
		"a person and a holder keep it": {"kept by pool-a, a person (launcher models keep, or a call without wanted_by)", func(t *testing.T, s *Store, v Version) {
			want(t, s, v, "", "pool-a", time.Time{})
			require.NoError(t, s.Keep(v.Key, true))
		}},
		"an earlier release has pinned it": {"x://old (60 bytes), kept by a person (launcher models keep, or a call without wanted_by)", func(t *testing.T, s *Store, v Version) {
			text := `{"id": "` + v.Key + `", "uri": "x://old", "since": "2026-11-24T10:00:00Z", "retention": "keep"}`
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, wantsDir, strings.Repeat("a", 32)), []byte(text), 0o644))
		}},
		"it is being fetched again": {"x://old (60 bytes), being fetched again", func(t *testing.T, s *Store, v Version) {
			require.NoError(t, os.Remove(filepath.Join(s.Files(v.Key), "w")))
			m, _ := manifest("x://old", "1", sized("old", 60))
			_, err := s.Admit(m, Want{})
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir(), Limit: 100, Retention: LRU})
			old := idleSince(t, s, "old", 60, 9)
			idleSince(t, s, "idle", 20, 1)
			c.keep(t, s, old)
			before, err := s.Used()
			require.NoError(t, err)
			_, err = admit(t, s, 41, Want{})
			var full *CapacityError
			require.ErrorAs(t, err, &full)
			require.ErrorContains(t, err, "these models stay: x://old")
			require.ErrorContains(t, err, c.says)
			after, err := s.Used()
			require.NoError(t, err)
			assert.Equal(t, before, after, "nothing goes where it would not be enough")
			gone, err := admit(t, s, 40, Want{})
			require.NoError(t, err)
			assert.Equal(t, []string{"idle"}, gone)
		})
	}
}

func TestStoreThatKeepsEvictsOnlyLRUModels(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 100})
	idleSince(t, s, "pulled", 40, 9)
	_, err := admit(t, s, 61, Want{})
	var full *CapacityError
	require.ErrorAs(t, err, &full)
	cached := idleSince(t, s, "cached", 40, 1)
	require.NoError(t, s.Want(Want{Key: cached.Key, URI: cached.Manifest.URI, Holder: "pool-a", Retention: LRU}))
	gone, err := admit(t, s, 60, Want{Holder: "pool-b"})
	require.NoError(t, err)
	assert.Equal(t, []string{"cached"}, gone)
	assert.Equal(t, []string{"pulled"}, there(t, s))
	left, err := os.ReadDir(filepath.Join(s.dir, wantsDir))
	require.NoError(t, err)
	assert.Empty(t, left, "nobody wants what is gone")
}

func TestKeepIsTakenBackAndLeavesNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Retention: LRU})
	one := func(name string) Version { return put(t, s, "x://"+name, "1", sized(name, 10)) }
	pulled, held, secret, plain := one("pulled"), one("held"), one("secret"), one("plain")
	want(t, s, pulled, "", "", time.Now())
	want(t, s, held, "", "pool", time.Now())
	require.NoError(t, s.Want(Want{Key: secret.Key, URI: "x://secret", Holder: "pool", Private: true}))
	before, err := s.wants()
	require.NoError(t, err)
	for _, v := range []Version{pulled, held, secret, plain} {
		require.NoError(t, s.Keep(v.Key, true))
	}
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		assert.Equal(t, Keep, v.Retention(), v.Manifest.URI)
		assert.Equal(t, v.Key == secret.Key, v.Private(), v.Manifest.URI)
	}
	for _, v := range []Version{pulled, held, secret, plain} {
		require.NoError(t, s.Keep(v.Key, false))
	}
	after, err := s.wants()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	var none *NotFoundError
	require.ErrorAs(t, s.Keep("0123456789", true), &none)
	require.NoError(t, os.Remove(filepath.Join(s.Files(plain.Key), "w")))
	var damaged *NotWholeError
	require.ErrorAs(t, s.Keep(plain.Key, true), &damaged)
}

// There is one want for each name, which the later version has.
func TestKeepOfAnEarlierVersionLeavesTheLaterOneKept(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	first, second := put(t, s, "x://m", "1", sized("first", 10)), put(t, s, "x://m", "2", sized("second", 10))
	for _, v := range []Version{first, second} {
		want(t, s, v, "", "", time.Now())
	}
	require.NoError(t, s.Keep(second.Key, true))
	require.NoError(t, s.Keep(first.Key, true))
	all, err := s.Versions()
	require.NoError(t, err)
	for _, v := range all {
		assert.Equal(t, Keep, v.Retention(), v.Manifest.Revision)
	}
}

// Two models that nobody keeps must not evict each other for as long as both are wanted.
func TestLRUModelEvictsNoOther(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 100, Retention: LRU})
	cached := Want{Holder: "pool-a", Retention: LRU}
	first := idleSince(t, s, "first", 60, 9)
	require.NoError(t, s.Want(Want{Key: first.Key, URI: first.Manifest.URI, Holder: "pool-b", Retention: LRU}))
	for range 2 {
		_, err := admit(t, s, 60, cached)
		var full *CapacityError
		require.ErrorAs(t, err, &full)
		require.ErrorContains(t, err, "no model is evicted for one with retention lru")
		assert.Equal(t, []string{"first"}, there(t, s))
	}
	_, err := admit(t, s, 40, cached)
	require.NoError(t, err)
	require.NoError(t, s.Remove(first.Key, "pool-b"))
	_, err = admit(t, s, 60, cached)
	require.NoError(t, err)
}

func TestSharedFileFreesNoRoom(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 100, Retention: LRU})
	shared := strings.Repeat("s", 50)
	one := put(t, s, "x://one", "1", map[string]string{"s": shared, "again": shared, "own": strings.Repeat("1", 10)})
	two := put(t, s, "x://two", "1", map[string]string{"s": shared, "own": strings.Repeat("2", 20)})
	usedAt(t, s, one, time.Now().Add(-2*time.Hour))
	usedAt(t, s, two, time.Now().Add(-time.Hour))
	gone, err := admit(t, s, 30, Want{})
	require.NoError(t, err)
	assert.Equal(t, []string{"one"}, gone)
	m, content := manifest("x://three", "1", map[string]string{"s": shared, "own": strings.Repeat("3", 50)})
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	require.Len(t, f.Evicted, 1, "two goes, and the file that the new one has too does not")
	for _, hash := range f.Have() {
		assert.Equal(t, shared, content[hash])
	}
	assert.Len(t, f.Have(), 1)
}

func TestDamagedModelIsFetchedAgainWithRoomForOne(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 100, Retention: LRU})
	m, content := manifest("x://m", "1", sized("m", 60))
	v := put(t, s, "x://m", "1", sized("m", 60))
	require.NoError(t, user(t, s, "launcher").Lease(v.Key, "i"))
	idleSince(t, s, "other", 30, 1)
	require.NoError(t, os.Chtimes(s.blob(m.Files[0].SHA256), time.Time{}, time.Now()))
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	assert.Empty(t, f.Evicted, "it takes the place of what is damaged")
	gone, err := admit(t, s, 10, Want{})
	require.NoError(t, err)
	assert.Empty(t, gone)
	var full *CapacityError
	_, err = admit(t, s, 41, Want{})
	require.ErrorAs(t, err, &full, "without the other there are 40 bytes")
	putFiles(t, f, content)
	_, err = f.Publish(m)
	require.NoError(t, err)
	assert.Equal(t, []string{"other", "m"}, there(t, s))
	used, err := s.Used()
	require.NoError(t, err)
	assert.EqualValues(t, 90, used)
}

func TestEvictionOrLeaseWinsTheirRace(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), Limit: 60, Retention: LRU})
	u := user(t, s, "x")
	for n := range 50 {
		v := put(t, s, "x://old", fmt.Sprint(n), sized("old", 60))
		var leased, admitted error
		var both sync.WaitGroup
		m := &fetchapi.Manifest{URI: "x://new", Revision: fmt.Sprint(n), Files: []fetchapi.File{{Path: "w", Size: 60}}}
		var f *Fetch
		both.Go(func() { leased = u.Lease(v.Key, "a") })
		both.Go(func() { f, admitted = s.Admit(m, Want{}) })
		both.Wait()
		require.NotEqual(t, leased == nil, admitted == nil, "%v %v", leased, admitted)
		if leased == nil {
			require.ErrorContains(t, admitted, "in use by a of x")
			require.NoError(t, s.Verify(v.Key))
			require.NoError(t, u.Release("a"))
			require.NoError(t, s.Remove(v.Key, ""))
			continue
		}
		var none *NotFoundError
		require.True(t, errors.As(leased, &none), "%v", leased)
		require.NoError(t, f.GiveUp(true))
	}
}
