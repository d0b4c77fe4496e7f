package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestWhatAPeakHasLeftIsGivenBack(t *testing.T) {
	const peak = 256 << 20
	left := func() uint64 { // that is free and not given back, with what is garbage
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapIdle - m.HeapReleased + m.HeapAlloc
	}
	full := make([]byte, peak)
	for n := range full {
		full[n] = 1
	}
	require.Greater(t, left(), uint64(peak))
	runtime.KeepAlive(full)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { giveBack(ctx, time.Millisecond) })
	assert.Eventually(t, func() bool { return left() < peak/4 }, patience.Wait(), time.Millisecond)
	cancel()
	running.Wait()
}
