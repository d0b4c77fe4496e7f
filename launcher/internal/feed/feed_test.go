package feed

import (
	"context"
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
