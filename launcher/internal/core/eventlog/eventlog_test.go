package eventlog

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestEveryEventGetsTheNextRevision(t *testing.T) {
	f := New(10, 41)
	assert.EqualValues(t, 42, f.Append(launcherapi.EventCreated, launcherapi.Instance{InstanceID: "a"}))
	assert.EqualValues(t, 43, f.Append(launcherapi.EventUpdated, launcherapi.Instance{InstanceID: "a"}))
	events, err := f.Next(t.Context(), 41)
	require.NoError(t, err)
	require.Len(t, events, 2)
	assert.EqualValues(t, 42, events[0].Object.Revision)
	assert.Equal(t, launcherapi.EventUpdated, events[1].Type)
}

func TestAReaderWaitsForTheNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(10, 0)
		got := make(chan []launcherapi.WatchEvent, 1)
		go func() {
			events, _ := f.Next(t.Context(), 0)
			got <- events
		}()
		synctest.Wait()
		require.Empty(t, got)
		f.Append(launcherapi.EventCreated, launcherapi.Instance{})
		assert.Len(t, <-got, 1)
	})
}

func TestARevisionThatLeftTheRingIsGone(t *testing.T) {
	f := New(2, 0)
	for range 3 {
		f.Append(launcherapi.EventUpdated, launcherapi.Instance{})
	}
	assert.Equal(t, launcherapi.CodeGone, launcher.CodeOf(f.Check(0)))
	assert.NoError(t, f.Check(1), "events 2 and 3 are there")
	events, err := f.Next(t.Context(), 1)
	require.NoError(t, err)
	assert.Len(t, events, 2)
}

func TestARevisionOfTheFutureIsGone(t *testing.T) {
	f := New(2, 7)
	assert.NoError(t, f.Check(7))
	assert.Equal(t, launcherapi.CodeGone, launcher.CodeOf(f.Check(8)))
	assert.Equal(t, launcherapi.CodeGone, launcher.CodeOf(f.Check(6)), "what came before a restart is not in the ring")
}

func TestClosingEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(2, 0)
		errs := make(chan error, 1)
		go func() {
			_, err := f.Next(context.Background(), 0)
			errs <- err
		}()
		synctest.Wait()
		f.Close()
		assert.Equal(t, launcherapi.CodeUnavailable, launcher.CodeOf(<-errs))
	})
}

func TestAReaderThatGoesAwayIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(2, 0)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := f.Next(ctx, 0)
			errs <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-errs, context.Canceled)
	})
}

func TestAReaderSeesEveryEventOnceAndInOrderHoweverOftenTheRingGoesRound(t *testing.T) {
	f := New(7, 1000)
	since := uint64(1000)
	for range 40 {
		for range 5 {
			f.Append(launcherapi.EventUpdated, launcherapi.Instance{})
		}
		events, err := f.Next(t.Context(), since)
		require.NoError(t, err)
		require.Len(t, events, 5)
		for _, e := range events {
			since++
			require.Equal(t, since, e.Object.Revision)
		}
	}
	assert.NoError(t, f.Check(since-7))
	assert.Equal(t, launcherapi.CodeGone, launcher.CodeOf(f.Check(since-8)))
}

func TestAReaderFromFarBackIsServedInParts(t *testing.T) {
	f := New(1000, 0)
	for range 1000 {
		f.Append(launcherapi.EventUpdated, launcherapi.Instance{})
	}
	var since uint64
	for since < 1000 {
		events, err := f.Next(t.Context(), since)
		require.NoError(t, err)
		require.LessOrEqual(t, len(events), batchLimit)
		require.Equal(t, since+1, events[0].Object.Revision)
		since = events[len(events)-1].Object.Revision
	}
}

func BenchmarkAppendToAFullRing(b *testing.B) {
	for _, limit := range []int{100, 100_000} {
		b.Run(strconv.Itoa(limit), func(b *testing.B) {
			f := New(limit, 0)
			for range limit {
				f.Append(launcherapi.EventUpdated, launcherapi.Instance{})
			}
			for b.Loop() {
				f.Append(launcherapi.EventUpdated, launcherapi.Instance{})
			}
		})
	}
}
