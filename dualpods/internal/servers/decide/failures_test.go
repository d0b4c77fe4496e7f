package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

// endedAfter is a requester whose instance ended after it had served it for so long.
func endedAfter(served time.Duration, before *podmeta.Failures) Observation {
	return but(servedOne(), func(o *Observation) {
		o.Instance.State, o.Instance.Reason, o.SPI.Proxy.Ready = "failed", "exit code 1", false
		o.Requester.ServesSince, o.Failures = now.Add(-served), before
	})
}

func TestFailuresAddUpUntilAnInstanceHasServedForLong(t *testing.T) {
	before := &podmeta.Failures{RequesterUID: "another", Count: 3, Last: now.Add(-time.Minute)}
	for _, e := range []struct {
		o     Observation
		count int
	}{
		{endedAfter(time.Second, nil), 1}, {endedAfter(time.Second, before), 4}, {endedAfter(Settled, before), 1},
	} {
		step := Decide(e.o)
		require.Equal(t, NoteFailure, step.Do, step.Rule)
		assert.Equal(t, podmeta.Failures{RequesterUID: "uid", Attempt: e.o.Record.SwapKey(), Count: e.count, Last: now, Why: "is failed (exit code 1)"}, step.Failures)
	}
}

func TestTheNextRequesterOfAnInstanceThatEndsAgainAndAgainBacksOff(t *testing.T) {
	for count, pause := range map[int]time.Duration{1: 0, 2: 10 * time.Second, 3: 20 * time.Second, 7: 5 * time.Minute, 500: 5 * time.Minute} {
		o := but(fresh(), func(o *Observation) {
			o.Requester.Finalizer = true
			o.Failures = &podmeta.Failures{RequesterUID: "another", Count: count, Last: now, Why: "is failed (exit code 1)"}
		})
		step := Decide(o)
		require.Equal(t, AddRecord, step.Do)
		assert.Equal(t, 1, step.Record.Attempt)
		if pause == 0 {
			assert.Zero(t, step.Record.RetryAt)
			continue
		}
		assert.Equal(t, now.Add(pause), step.Record.RetryAt, count)

		o.Record, o.Requester.Told = &step.Record, ""
		waits := Decide(o)
		assert.Equal(t, "backing off", waits.Rule)
		assert.Equal(t, AttemptFailed, waits.Reason)
		assert.Equal(t, pause, waits.After)
		assert.Contains(t, waits.Why, "times soon after it served; at last it is failed (exit code 1); the next one is at ")
		o.Now = o.Now.Add(pause)
		assert.Equal(t, Swap, Decide(o).Do)
	}
	o := but(fresh(), func(o *Observation) {
		o.Requester.Finalizer = true
		o.Failures = &podmeta.Failures{RequesterUID: "another", Count: 4, Last: now.Add(-time.Minute)}
	})
	assert.Zero(t, Decide(o).Record.RetryAt, "it has been long enough")
}

func TestRetryTimeOfAClockThatWasAheadDoesNotCount(t *testing.T) {
	for ahead, waits := range map[time.Duration]bool{
		-time.Second: false, time.Second: true, LongestPause: true, LongestPause + time.Minute: true, 2*LongestPause + time.Second: false, 900 * time.Hour: false,
	} {
		o := but(recorded(), func(o *Observation) {
			o.Record.Attempt, o.Record.Failure, o.Record.RetryAt = 2, "no memory", o.Now.Add(ahead)
		})
		step := Decide(o)
		if waits {
			assert.Equal(t, "backing off", step.Rule, ahead)
			assert.Equal(t, ahead, step.After)
			continue
		}
		assert.Equal(t, Swap, step.Do, ahead)
	}
	o := but(recorded(), func(o *Observation) {
		o.Record.Failures, o.Record.RetryAt, o.Requester.WaitsSince = 7, o.Now.Add(900*time.Hour), o.Now.Add(-time.Minute)
		o.Attempt = Attempt{Asked: true, Over: true, Failure: "no memory"}
	})
	step := Decide(o)
	assert.Equal(t, NextAttempt, step.Do)
	assert.Equal(t, 1, step.Record.Failures, "it was served since the attempt before")
	assert.Equal(t, o.Now.Add(FirstPause), step.Record.RetryAt)
}

func TestANoteOfTheFutureKeepsNobodyWaitingForLongerThanOneOfNow(t *testing.T) {
	o := fresh()
	o.Failures = &podmeta.Failures{Count: 2, Last: o.Now.AddDate(900, 0, 0), Why: "it ended"}
	assert.Equal(t, o.Now.Add(SecondStart), Decide(o).Record.RetryAt)
}

func TestInputThatTheLauncherRefusesIsToldAsInvalid(t *testing.T) {
	o := but(recorded(), func(o *Observation) {
		o.Attempt = Attempt{Asked: true, Over: true, Failure: "two GPUs are needed", Invalid: true}
	})
	next := Decide(o)
	require.Equal(t, NextAttempt, next.Do)
	o.Record, o.Attempt = &next.Record, Attempt{}
	waits := Decide(o)
	assert.Equal(t, InvalidInput, waits.Reason)
	assert.Contains(t, waits.Why, "failed: two GPUs are needed; the next one is at ")

	o.Now = o.Now.Add(FirstPause)
	o.Attempt = Attempt{Asked: true, Over: true, Failure: "no memory"}
	next = Decide(o)
	o.Record, o.Attempt = &next.Record, Attempt{}
	assert.Equal(t, AttemptFailed, Decide(o).Reason, "the last attempt counts")
}
