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

// take starts a Take and returns a channel that holds its release once served.
func take(q *Queue, ctx context.Context, id string, keys ...string) <-chan func() {
	got := make(chan func(), 1)
	go func() {
		if turn, err := q.Take(ctx, id, keys); err == nil {
			got <- turn.Release
		}
	}()
	return got
}

func served(ch <-chan func()) (func(), bool) {
	synctest.Wait()
	select {
	case r := <-ch:
		return r, true
	default:
		return nil, false
	}
}

func TestOverlappingSetsAreServedInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		ctx := t.Context()
		a, ok := served(take(&q, ctx, "a", "0", "1"))
		require.True(t, ok)
		b := take(&q, ctx, "b", "1", "2")
		synctest.Wait()
		c := take(&q, ctx, "c", "2")
		_, ok = served(c)
		assert.False(t, ok, "c overlaps b, which asked first, though nobody holds GPU 2 yet")
		assert.Equal(t, "a", q.Holder("1"))
		assert.Empty(t, q.Holder("2"))
		a()
		rb, ok := served(b)
		require.True(t, ok)
		_, ok = served(c)
		assert.False(t, ok)
		rb()
		rc, ok := served(c)
		require.True(t, ok)
		rc()
		active, waiting := q.Counts()
		assert.Zero(t, active+waiting)
	})
}

func TestDisjointSetsAreServedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		a, ok := served(take(&q, t.Context(), "a", "0"))
		require.True(t, ok)
		b, ok := served(take(&q, t.Context(), "b", "1"))
		require.True(t, ok)
		a()
		b()
	})
}

func TestATicketThatGivesUpLetsTheNextOnesPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		a, ok := served(take(&q, t.Context(), "a", "0"))
		require.True(t, ok)
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := q.Take(ctx, "b", []string{"0", "1"})
			errs <- err
		}()
		synctest.Wait()
		c := take(&q, t.Context(), "c", "1")
		_, ok = served(c)
		require.False(t, ok)
		gaveUp := errors.New("gave up")
		cancel(gaveUp)
		require.ErrorIs(t, <-errs, gaveUp)
		rc, ok := served(c)
		require.True(t, ok, "c waited only for b")
		a()
		rc()
	})
}

func TestReleasingTwiceHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		a, _ := served(take(&q, t.Context(), "a", "0"))
		a()
		b, ok := served(take(&q, t.Context(), "b", "0"))
		require.True(t, ok)
		a()
		assert.Equal(t, "b", q.Holder("0"))
		b()
	})
}

func TestRandomSetsNeverOverlapAndNeverDeadlock(t *testing.T) {
	var q Queue
	var mu sync.Mutex
	holding := map[string]string{}
	var wg sync.WaitGroup
	for n := range 300 {
		keys := []string{}
		for k := range 4 {
			if rand.Intn(2) == 0 {
				keys = append(keys, fmt.Sprint(k))
			}
		}
		wg.Go(func() {
			id := fmt.Sprint(n)
			turn, err := q.Take(context.Background(), id, keys)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			for _, k := range keys {
				assert.Empty(t, holding[k], "two hold GPU %s", k)
				holding[k] = id
			}
			mu.Unlock()
			mu.Lock()
			for _, k := range keys {
				delete(holding, k)
			}
			mu.Unlock()
			turn.Release()
		})
	}
	wg.Wait()
	served, waiting := q.Counts()
	assert.Zero(t, served+waiting)
}
