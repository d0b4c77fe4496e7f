package swap

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResultSaysWhenSwapAndPhasesBegan(t *testing.T) {
	m := newMoody()
	in(t, func(t *testing.T, w *world) {
		w.awake("x", "g0")
		ready := make(chan struct{})
		m.starts(until(ready))
		asked := time.Now()
		swap := w.begin(requestForNew("n", "g0"))
		synctest.Wait()
		time.Sleep(3 * time.Second)
		close(ready)
		r, err := swap.Wait(t.Context())
		require.NoError(t, err)
		assert.True(t, r.BeganAt.Equal(asked), "%s, asked at %s", r.BeganAt, asked)
		at := map[string]float64{}
		for _, p := range r.Phases {
			at[p.Name] = p.BeganMS
		}
		require.Contains(t, at, "healthy")
		assert.GreaterOrEqual(t, at["open"]-at["healthy"], 3000.0, "healthy took three seconds")
		assert.Equal(t, r.TotalMS, at["open"])
	}, m.engines)
}
