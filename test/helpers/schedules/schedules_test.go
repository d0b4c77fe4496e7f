package schedules_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

func TestEachSeedOfTheRangeIsPlayedOnce(t *testing.T) {
	var mu sync.Mutex
	var played []uint64
	t.Run("them", func(t *testing.T) {
		schedules.Play(t, schedules.Range{From: 7, Seeds: 100}, func(_ *testing.T, seed uint64) []string {
			mu.Lock()
			defer mu.Unlock()
			played = append(played, seed)
			return nil
		}, nil)
	})
	slices.Sort(played)
	assert.Len(t, played, 100)
	assert.Equal(t, uint64(7), played[0])
	assert.Equal(t, played, slices.Compact(slices.Clone(played)))
	assert.Equal(t, uint64(106), played[99])
}

func TestTheRangeIsSaidByTheEnvironment(t *testing.T) {
	t.Setenv("FROM", "5")
	t.Setenv("SEEDS", "")
	assert.Equal(t, schedules.Range{From: 5, Seeds: 9}, schedules.FromEnvironment(t, 9))
}

func TestWhatBreaksIsShortenedToWhatIsNeeded(t *testing.T) {
	asked := 0
	short := schedules.Shorten([]int{1, 2, 3, 4, 5, 6}, func(steps []int) bool {
		asked++
		return slices.Contains(steps, 2) && slices.Contains(steps, 5)
	})
	assert.Equal(t, []int{2, 5}, short)
	assert.Less(t, asked, 20)
}
