package gpuqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aside takes a turn and steps aside; back brings it back, and returned gives
// its release once it has the turn again.
func aside(t *testing.T, q *Queue, id string, keys ...string) (back func(), returned <-chan func()) {
	t.Helper()
	turn, err := q.Take(t.Context(), id, keys)
	require.NoError(t, err)
	wait, got := make(chan struct{}), make(chan func(), 1)
	go func() {
		err := turn.Aside(t.Context(), func(context.Context) error { <-wait; return nil })
		if err == nil {
			got <- turn.Release
		}
	}()
	synctest.Wait()
	return func() { close(wait) }, got
}

func TestWhoStepsAsideLetsOthersPassAndComesBackBeforeThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		back, returned := aside(t, &q, "a", "0")
		assert.Empty(t, q.Holder("0"))
		b, ok := served(take(&q, t.Context(), "b", "0"))
		require.True(t, ok, "a is in nobody's way")
		back()
		c := take(&q, t.Context(), "c", "0")
		_, ok = served(returned)
		require.False(t, ok, "b has the turn")
		b()
		a, ok := served(returned)
		require.True(t, ok)
		_, ok = served(c)
		assert.False(t, ok, "a asked before c")
		a()
		last, ok := served(c)
		require.True(t, ok)
		last()
		active, waiting := q.Counts()
		assert.Zero(t, active+waiting)
	})
}

func TestThoseThatStepAsideComeBackInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		firstBack, first := aside(t, &q, "a", "0")
		secondBack, second := aside(t, &q, "b", "0", "1")
		thirdBack, third := aside(t, &q, "c", "1")
		thirdBack()
		secondBack()
		_, ok := served(second)
		assert.False(t, ok, "a asked before, and waits for the same")
		_, ok = served(third)
		assert.False(t, ok, "b asked before")
		passing, ok := served(take(&q, t.Context(), "d", "1"))
		require.True(t, ok, "d was never aside, and may not have to wait")
		passing()
		firstBack()
		for _, who := range []<-chan func(){first, second, third} {
			release, ok := served(who)
			require.True(t, ok)
			release()
		}
	})
}

func TestWhoGivesUpWhileAsideLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		turn, err := q.Take(t.Context(), "a", []string{"0"})
		require.NoError(t, err)
		gaveUp := errors.New("gave up")
		assert.ErrorIs(t, turn.Aside(t.Context(), func(context.Context) error { return gaveUp }), gaveUp)
		active, waiting := q.Counts()
		assert.Zero(t, active+waiting)

		turn, err = q.Take(t.Context(), "a", []string{"0"})
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		var other *Turn
		err = turn.Aside(ctx, func(context.Context) error {
			other, err = q.Take(t.Context(), "b", []string{"0"})
			cancel(gaveUp)
			return err
		})
		assert.ErrorIs(t, err, gaveUp)
		other.Release()
		active, waiting = q.Counts()
		assert.Zero(t, active+waiting)
	})
}

func TestManyThatStepAsideNeverHoldOneKeyTwiceAndAllEnd(t *testing.T) {
	var q Queue
	var mu sync.Mutex
	holding := map[string]string{}
	hold := func(id string, keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range keys {
			assert.Empty(t, holding[k], "two hold GPU %s", k)
			holding[k] = id
		}
	}
	drop := func(keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range keys {
			delete(holding, k)
		}
	}
	var all sync.WaitGroup
	for n := range 300 {
		id, times := fmt.Sprint(n), rand.Intn(3)
		keys := []string{fmt.Sprint(rand.Intn(4)), fmt.Sprint(4 + rand.Intn(4))}
		all.Go(func() {
			turn, err := q.Take(context.Background(), id, keys)
			if !assert.NoError(t, err) {
				return
			}
			for range times {
				hold(id, keys)
				drop(keys)
				assert.NoError(t, turn.Aside(context.Background(), func(context.Context) error { return nil }))
			}
			hold(id, keys)
			drop(keys)
			turn.Release()
		})
	}
	all.Wait()
	active, waiting := q.Counts()
	assert.Zero(t, active+waiting)
}
