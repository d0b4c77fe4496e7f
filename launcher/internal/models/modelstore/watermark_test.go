package modelstore

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storeWithWatermarks makes a store with a limit of 100 bytes and the watermarks 90 and
// 50. Other files take the given percentage of its disk.
func storeWithWatermarks(t *testing.T, others int64) *Store {
	t.Helper()
	s := open(t, Options{Dir: t.TempDir(), Limit: 100, Retention: LRU, Marks: Watermarks{High: 90, Low: 50}})
	s.disk = func(string) (size, free int64, err error) {
		used, err := s.Used()
		return 1000, max(0, 1000-10*others-used), err
	}
	return s
}

// published fetches and publishes a model, and returns the evictions.
func published(t *testing.T, s *Store, name string, bytes int) (gone []string, freed int64) {
	t.Helper()
	m, content := manifest("x://"+name, "1", sized(name, bytes))
	f, err := s.Admit(m, Want{})
	require.NoError(t, err)
	putFiles(t, f, content)
	_, err = f.Publish(m)
	require.NoError(t, err)
	for _, v := range f.Evicted {
		assert.Equal(t, AboveTheMark, v.Why)
		gone = append(gone, strings.TrimPrefix(v.Manifest.URI, "x://"))
		freed += v.Bytes
	}
	return gone, freed
}

func TestStoreAboveHighWatermarkEvictsToLowOne(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  int
		others int64 // of the disk, in percent
		prefer func(t *testing.T, s *Store, v map[string]Version)
		gone   []string
		freed  int64
	}{
		"the store is at the high watermark":   {bytes: 20},
		"the store is a byte above it":         {bytes: 21, gone: []string{"third", "second"}, freed: 50},
		"one more model is enough":             {bytes: 25, prefer: used("second"), gone: []string{"third", "first"}, freed: 50},
		"the disk is above the high watermark": {bytes: 10, others: 90, gone: []string{"third", "second", "first"}, freed: 70},
		"the disk is below the high watermark": {bytes: 10, others: 80},
		"a model in use stays":                 {bytes: 30, prefer: leased("third"), gone: []string{"second", "first"}, freed: 40},
		"a wanted model stays":                 {bytes: 30, prefer: kept("third"), gone: []string{"second", "first"}, freed: 40},
		"a pinned model stays":                 {bytes: 30, prefer: kept("third", ""), gone: []string{"second", "first"}, freed: 40},
		"evictable models are not enough":      {bytes: 30, prefer: kept("third", "second"), gone: []string{"first"}, freed: 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeWithWatermarks(t, c.others)
			s.watermarks = Watermarks{} // not yet
			v := map[string]Version{"first": idleSince(t, s, "first", 20, 1), "third": idleSince(t, s, "third", 30, 3), "second": idleSince(t, s, "second", 20, 2)}
			s.watermarks = Watermarks{High: 90, Low: 50}
			if c.prefer != nil {
				c.prefer(t, s, v)
			}
			gone, freed := published(t, s, "new", c.bytes)
			assert.Equal(t, c.gone, gone)
			assert.Equal(t, c.freed, freed)
			assert.Len(t, there(t, s), 4-len(gone))
			assert.Contains(t, there(t, s), "new")
		})
	}
}

func used(name string) func(t *testing.T, s *Store, v map[string]Version) {
	return func(t *testing.T, s *Store, v map[string]Version) {
		t.Helper()
		usedAt(t, s, v[name], time.Now())
	}
}

func leased(name string) func(t *testing.T, s *Store, v map[string]Version) {
	return func(t *testing.T, s *Store, v map[string]Version) {
		t.Helper()
		require.NoError(t, user(t, s, "x").Lease(v[name].Key, "i"))
	}
}

// kept adds a want with retention Keep for each name. An empty name pins the first
// model.
func kept(names ...string) func(t *testing.T, s *Store, v map[string]Version) {
	return func(t *testing.T, s *Store, v map[string]Version) {
		t.Helper()
		holder := "pool"
		for _, name := range names {
			if name == "" {
				name, holder = names[0], ""
				require.NoError(t, s.Unwant(v[name].Key, "pool"))
			}
			require.NoError(t, s.Want(Want{Key: v[name].Key, URI: v[name].Manifest.URI, Holder: holder, Retention: Keep}))
		}
	}
}

// Models that are kept only while there is room fill the store up to the low watermark.
// So they never bring it above the high one, and are not evicted and fetched again.
func TestLRUModelIsNotFetchedBeyondLowWatermark(t *testing.T) {
	s := storeWithWatermarks(t, 0)
	cached := Want{Holder: "pool", Retention: LRU}
	idleSince(t, s, "old", 30, 9)
	_, err := admit(t, s, 20, cached)
	require.NoError(t, err)
	_, err = admit(t, s, 21, cached)
	var full *CapacityError
	require.ErrorAs(t, err, &full)
	require.ErrorContains(t, err, "of the limit of 50 bytes, 30 bytes are in use")
	require.ErrorContains(t, err, "only 50% of it count")
	_, err = admit(t, s, 21, Want{})
	require.NoError(t, err, "a person has what there is")

	s = storeWithWatermarks(t, 45)
	_, err = admit(t, s, 50, cached)
	require.NoError(t, err)
	s = storeWithWatermarks(t, 46)
	_, err = admit(t, s, 50, cached)
	require.ErrorAs(t, err, &full)
	require.ErrorContains(t, err, "the disk has 40 bytes free")
}

func TestStoreWithoutHighWatermarkEvictsNothing(t *testing.T) {
	for _, marks := range []Watermarks{{}, {High: 100, Low: 80}} {
		s := storeWithWatermarks(t, 0)
		s.watermarks = marks
		idleSince(t, s, "old", 60, 9)
		gone, _ := published(t, s, "new", 40)
		assert.Empty(t, gone)
	}
}
