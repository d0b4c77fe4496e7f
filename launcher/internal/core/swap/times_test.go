package swap

import (
	"bytes"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
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

func TestRecoveredSwapKeepsTheTimeWhenItBegan(t *testing.T) {
	hour := time.Hour.Seconds() * 1000
	for name, c := range map[string]struct {
		ago     time.Duration
		totalMS float64 // at least
	}{"it began an hour ago": {time.Hour, hour}, "the wall clock was set back since": {-time.Hour, 0}} {
		t.Run(name, func(t *testing.T) {
			written := newPaper(t)
			l := life(t, written)
			s := saved("s1", "g0")
			began := time.Now().Add(-c.ago).Round(0) // as it is read from a record
			s.Began = began
			recovered := time.Now()
			l.Recover([]Saved{s})
			r, err := l.Get("s1")
			require.NoError(t, err)
			result, err := r.Wait(t.Context())
			require.Error(t, err)
			l.tasks.Wait()
			now, _ := r.Show()
			assert.True(t, result.BeganAt.Equal(now.BeganAt), "the answer says %s, the list %s", result.BeganAt, now.BeganAt)
			if c.ago > 0 {
				assert.True(t, result.BeganAt.Equal(began), "%s, began at %s", result.BeganAt, began)
			} else {
				assert.WithinRange(t, result.BeganAt, recovered, time.Now())
			}
			assert.GreaterOrEqual(t, result.TotalMS, c.totalMS)
			require.NotEmpty(t, result.Phases)
			assert.GreaterOrEqual(t, result.Phases[0].BeganMS, c.totalMS)
		})
	}
}

func TestRequestThatIsRefusedAtOnceIsNamedInTheLog(t *testing.T) {
	c := life(t, newPaper(t))
	var log bytes.Buffer
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	_, err := c.Begin(launcherapi.SwapRequest{Until: "no such phase"}, "")
	failed := asFailed(err)
	require.NotNil(t, failed, "%v", err)
	assert.Contains(t, log.String(), "swap="+failed.Result.SwapID)
	_, err = c.Get(failed.Result.SwapID)
	assert.Equal(t, launcherapi.CodeNotFound, launcher.CodeOf(err))
}
