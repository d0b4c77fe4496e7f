package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// setClock has the records read as if the wall clock had been set since.
func (s *SavedState) setClock(by time.Duration) {
	for n := range s.Instances {
		saved := &s.Instances[n]
		for _, at := range []*time.Time{&saved.Created, &saved.Since, &saved.LastUsed} {
			*at = at.Round(0).Add(-by)
		}
	}
}

func TestClockThatIsSetEndsNoStartAndStretchesNone(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 10 * time.Hour, "back": -10 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				r.engine.ready = never
				r.create("a", "0.5")
				time.Sleep(4 * time.Minute)
				memory := remembered(t, r)
				memory.setClock(by)
				fresh, _ := nextLife(t, r)
				fresh.engine.ready = never
				require.NoError(t, fresh.Recover(t.Context(), memory))
				defer fresh.Close(context.Background(), false)
				time.Sleep(5 * time.Minute)
				assert.Equal(t, "starting", fresh.state("a"))
				time.Sleep(2 * time.Minute)
				view, err := fresh.Get("a")
				require.NoError(t, err)
				assert.Equal(t, causeStartTimeout, view.Cause, "ten minutes are over")
			})
		})
	}
}

func TestAgeOfRecoveredInstanceDoesNotFollowTheWallClock(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.awake("a", "0.5")
		time.Sleep(time.Minute)
		memory := remembered(t, r)
		memory.setClock(-10 * time.Hour)
		fresh, _ := nextLife(t, r)
		require.NoError(t, fresh.Recover(t.Context(), memory))
		defer fresh.Close(context.Background(), false)
		i := fresh.instances["a"]
		assert.Equal(t, launcher.Awake, i.state)
		assert.Equal(t, time.Minute, time.Since(i.since), "min_residency is reckoned by that")
		assert.Equal(t, time.Minute, time.Since(i.lastUsed()))
	})
}
