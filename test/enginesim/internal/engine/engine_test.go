package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is an executor that records its calls.
type fake struct {
	calls []string
	err   error
}

func (f *fake) Sleep(int) error       { f.calls = append(f.calls, "sleep"); return f.err }
func (f *fake) WakeUp([]string) error { f.calls = append(f.calls, "wake"); return f.err }
func (f *fake) ReloadWeights() error  { f.calls = append(f.calls, "reload"); return f.err }
func (f *fake) Reach() error          { return nil }

func newEngine(slots int) (*Engine, *fake) {
	f := &fake{}
	return New(Options{Executor: f, Slots: slots, Warn: func(string, string, ...any) {}}), f
}

// run makes tokens of a second each until there is an error, and says how many.
func run(ctx context.Context, t *testing.T, e *Engine, most int) (tokens int, err error) {
	t.Helper()
	r, err := e.Begin()
	require.NoError(t, err)
	defer r.End()
	for tokens < most {
		if err := r.Step(ctx, time.Second); err != nil {
			return tokens, err
		}
		tokens++
	}
	return tokens, nil
}

func TestAnExecutorIsPutToSleepAndWokenOnce(t *testing.T) {
	e, f := newEngine(1)
	ctx := t.Context()
	require.NoError(t, e.WakeUp(ctx, nil))
	require.NoError(t, e.Sleep(ctx, 1, "abort"))
	require.NoError(t, e.Sleep(ctx, 2, "abort"))
	require.NoError(t, e.WakeUp(ctx, []string{"weights"}))
	require.NoError(t, e.WakeUp(ctx, []string{"weights"}), "not asleep any more: no more than a warning")
	require.NoError(t, e.WakeUp(ctx, []string{"kv_cache"}))
	require.NoError(t, e.WakeUp(ctx, nil))
	require.Equal(t, []string{"sleep", "wake", "wake"}, f.calls)
}

func TestAnExecutorThatFailsLeavesTheStateAsItWas(t *testing.T) {
	e, f := newEngine(1)
	ctx := t.Context()
	f.err = errors.New("broken")
	require.ErrorIs(t, e.Sleep(ctx, 1, "abort"), f.err)
	require.True(t, e.State().MetricAwake)
	f.err = nil
	require.NoError(t, e.Sleep(ctx, 1, "abort"))
	f.err = errors.New("broken")
	require.ErrorIs(t, e.WakeUp(ctx, nil), f.err)
	require.True(t, e.State().Sleeping)
	f.err = nil
	require.NoError(t, e.WakeUp(ctx, nil))
	require.False(t, e.State().Sleeping)
}

func TestASleepMeetsRequestsAsItsModeSays(t *testing.T) {
	for mode, want := range map[string]struct {
		tokens int
		err    error
	}{"abort": {2, ErrAborted}, "wait": {10, nil}, "keep": {10, nil}} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := newEngine(1)
				var tokens int
				var err error
				go func() { tokens, err = run(t.Context(), t, e, 10) }()
				time.Sleep(2500 * time.Millisecond)
				began := time.Now()
				require.NoError(t, e.Sleep(t.Context(), 1, mode))
				require.Equal(t, mode == "wait", time.Since(began) > 0, "wait alone lets it end first")
				time.Sleep(time.Hour)
				require.NoError(t, e.WakeUp(t.Context(), nil))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, want.tokens, tokens)
				require.ErrorIs(t, err, want.err)
			})
		})
	}
}

func TestRequestsWaitForASlotAndForAWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newEngine(2)
		for range 3 {
			go func() { _, _ = run(t.Context(), t, e, 10) }()
		}
		synctest.Wait()
		require.Equal(t, 2, e.State().Running)
		require.Equal(t, 1, e.State().Waiting)
		time.Sleep(11 * time.Second)
		require.Equal(t, 1, e.State().Running)
		time.Sleep(11 * time.Second)
		require.NoError(t, e.Sleep(t.Context(), 0, "abort"))
		go func() { _, _ = run(t.Context(), t, e, 10) }()
		time.Sleep(time.Hour)
		require.Equal(t, 1, e.State().Waiting)
		e.Resume()
		time.Sleep(time.Hour)
		require.Zero(t, e.State().Live)
	})
}

func TestADeadEngineEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newEngine(1)
		var errs [3]error
		go func() { _, errs[0] = run(t.Context(), t, e, 10) }()
		synctest.Wait()
		go func() { _, errs[1] = run(t.Context(), t, e, 10) }()
		go func() { errs[2] = e.Sleep(t.Context(), 1, "wait") }()
		time.Sleep(time.Second)
		e.Die()
		synctest.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, ErrDead)
		}
		require.ErrorIs(t, e.WakeUp(t.Context(), nil), ErrDead)
		_, err := e.Begin()
		require.ErrorIs(t, err, ErrDead)
	})
}

func TestARequestEndsWhenItsClientGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newEngine(1)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		tokens, err := run(ctx, t, e, 10)
		require.Equal(t, 2, tokens)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, e.State().Live)
	})
}

func TestTheMomentARequestBeganDecidesWhetherItsAnswerIsNonsense(t *testing.T) {
	e, _ := newEngine(1)
	ctx := t.Context()
	require.NoError(t, e.Sleep(ctx, 2, "abort"))
	require.NoError(t, e.WakeUp(ctx, nil))
	r, err := e.Begin()
	require.NoError(t, err)
	defer r.End()
	require.NoError(t, r.Step(ctx, 0))
	require.NoError(t, e.Reload())
	require.True(t, r.Garbled())
}
