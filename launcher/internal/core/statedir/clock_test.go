package statedir

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fromDisk returns a time as a record has it, after the wall clock was set by some time.
func fromDisk(t *testing.T, at time.Time, set time.Duration) (read time.Time) {
	t.Helper()
	text, err := json.Marshal(at.Add(-set))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &read))
	return read
}

func TestTimesInRecordsDoNotFollowTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		booted := time.Now().Add(-time.Hour)
		clock := Clock{Boot: "this", Since: func() time.Duration { return time.Since(booted) }}
		began := time.Now()
		stamp := clock.Stamp(began)
		time.Sleep(time.Minute)
		for what, c := range map[string]struct {
			stamp Stamp
			set   time.Duration
			want  time.Duration // since then
		}{
			"the clock was not set":     {stamp: stamp, want: time.Minute},
			"it was set forward":        {stamp: stamp, set: time.Hour, want: time.Minute},
			"it was set back":           {stamp: stamp, set: -time.Hour, want: time.Minute},
			"no stamp":                  {want: time.Minute},
			"no stamp, set back":        {set: -time.Hour, want: 0},
			"no stamp, set forward":     {set: time.Hour, want: time.Hour + time.Minute},
			"a stamp of another boot":   {stamp: Stamp{Boot: "other", At: stamp.At}, set: -time.Hour, want: 0},
			"a stamp of another record": {stamp: Stamp{Boot: "this"}, want: time.Minute},
		} {
			at := fromDisk(t, began, c.set)
			clock.RestorePast(c.stamp, &at)
			assert.Equal(t, c.want, time.Since(at), what)
			if c.set == 0 {
				assert.True(t, at.Equal(began), "%s: it is shown as before", what)
			}
		}
		deadline := fromDisk(t, began.Add(time.Hour), -10*time.Hour)
		clock.Restore(clock.Stamp(began.Add(time.Hour)), &deadline)
		assert.Equal(t, time.Hour-time.Minute, time.Until(deadline))
	})
}

func TestKernelClockIsThatOfThisBoot(t *testing.T) {
	var clock Clock
	first := clock.Stamp(time.Now())
	assert.NotEmpty(t, first.Boot)
	at := time.Now().Add(-time.Hour)
	clock.Restore(first, &at)
	assert.Less(t, time.Since(at), time.Hour)
}

func TestRevisionsGrowThoughTheClockIsSetBack(t *testing.T) {
	path := t.TempDir()
	since := time.Hour
	clock := Clock{Boot: "this", Since: func() time.Duration { return since }}
	begin := func(written uint64, wall time.Time) uint64 {
		d, err := Open(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		next, err := d.NextRevision(written, wall, clock)
		require.NoError(t, err)
		return next
	}
	now := time.Now()
	assert.Zero(t, begin(0, now), "the first launcher of a folder")
	second := begin(0, now)
	assert.EqualValues(t, now.UnixMilli(), second)
	since += time.Minute // it gave out one for each millisecond, and no record has the last
	third := begin(second+5, now.Add(-time.Hour))
	assert.Greater(t, third, second+uint64(time.Minute.Milliseconds()))
	clock.Boot = "another"
	assert.Greater(t, begin(0, now.Add(-time.Hour)), third)
}
