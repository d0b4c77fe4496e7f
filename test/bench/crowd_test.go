package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestALargeCrowdMayTakeTwiceTheTimeOfASmallOne(t *testing.T) {
	few := times{4e6}
	assert.Equal(t, row{
		Figure: "f (ms)", Samples: 1, Ours: "8.00 / 8.00", Bare: "4.00 / 4.00", Beside: "2.0×", Target: "p50 ≤ 2×", Met: true,
	}, beside("f", times{8e6}, few))
	assert.False(t, beside("f", times{9e6}, few).Met)
	assert.Empty(t, beside("f", times{9e6}, times{-1e6}).Beside, "less than nothing has no multiple")
}

func TestAMemberOfAnEventIsFoundWithoutDecoding(t *testing.T) {
	line := []byte(`{"type":"UPDATED","object":{"instance_id":"a","state":"awake","state_since":"2026-11-22T03:00:00.1Z"}}`)
	assert.Equal(t, "awake", member(line, "state"))
	assert.Equal(t, "2026-11-22T03:00:00.1Z", member(line, "state_since"))
	assert.Empty(t, member(line, "reason"))
}

func TestAChangeIsTimedWhenTheLastWatcherHasRead(t *testing.T) {
	began := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	a := &audience{size: 2, heard: map[change]int{}}
	c := change{"awake", began.Format(time.RFC3339Nano)}
	a.note(c, began.Add(time.Millisecond))
	assert.Empty(t, a.took)
	a.note(c, began.Add(3*time.Millisecond))
	assert.Equal(t, times{3 * time.Millisecond}, a.took)
	assert.Equal(t, 1, a.arrived)
}
