package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestTopListsSwapsWhenThereMayBeNews(t *testing.T) {
	over, runs := launcherapi.Swap{State: launcherapi.SwapOver}, launcherapi.Swap{State: launcherapi.SwapWaiting}
	for name, c := range map[string]struct {
		gpus   launcherapi.GPUList
		swaps  []launcherapi.Swap
		ago    time.Duration
		told   bool
		listed bool
	}{
		"nothing has happened":   {swaps: []launcherapi.Swap{over}},
		"a swap runs":            {gpus: launcherapi.GPUList{ActiveSwaps: 1}, listed: true},
		"a swap waits":           {gpus: launcherapi.GPUList{QueuedSwaps: 1}, listed: true},
		"one ran when it looked": {swaps: []launcherapi.Swap{over, runs}, listed: true},
		"an event told of one":   {told: true, listed: true},
		"the list is old":        {ago: listEvery, listed: true},
	} {
		l := newLooker(nil, "")
		l.swaps, l.listed = c.swaps, time.Now().Add(-c.ago)
		l.swapped.Store(c.told)
		assert.Equal(t, c.listed, l.mayHaveSwaps(c.gpus), name)
		assert.False(t, l.swapped.Load(), name)
	}
}

// Under the race detector this also shows that the looks, the stream of events and those of swaps
// do not get in each other's way.
func TestTopShowsTheSwapsOfALauncherAndTheirPhases(t *testing.T) {
	d := startDaemon(t, "--front-door=")
	cl, err := client.New(client.Options{Server: "http://" + d.address})
	require.NoError(t, err)
	defer cl.Close()
	eye := newLooker(cl, d.address)
	first, err := eye.look(t.Context())
	require.NoError(t, err)
	require.Empty(t, first.swaps)
	ctx, end := context.WithCancel(t.Context())
	pictures, ended := make(chan picture), make(chan struct{})
	go func() {
		defer close(ended)
		eye.run(ctx, first, pictures)
	}()
	in := launcherapi.SwapIn{ID: "a", Args: []string{"model"}, GPUUUIDs: []string{first.gpus[0].UUID}}
	_, err = cl.Swap(t.Context(), launcherapi.SwapRequest{In: &in}, nil)
	require.NoError(t, err)
	for p := range pictures {
		require.NoError(t, p.lost)
		if len(p.swaps) == 1 && p.swaps[0].State == launcherapi.SwapOver && len(p.phases[p.swaps[0].SwapID]) > 0 {
			break
		}
	}
	end()
	for done := false; !done; {
		select {
		case <-pictures:
		case <-ended:
			done = true
		}
	}
}
