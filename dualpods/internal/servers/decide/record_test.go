package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestAttemptsBackOff(t *testing.T) {
	o := recorded()
	o.Attempt = Attempt{Asked: true, Over: true, Failure: "boom"}
	for n, pause := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 8: 128 * time.Second, 10: 5 * time.Minute, 200: 5 * time.Minute} {
		record := *o.Record
		record.Attempt, record.Failures = n+40, n-1
		o.Record = &record
		step := Decide(o)
		require.Equal(t, NextAttempt, step.Do)
		assert.Equal(t, n+41, step.Record.Attempt, "each attempt has a key of its own")
		assert.Equal(t, n, step.Record.Failures)
		assert.Equal(t, "boom", step.Record.Failure)
		assert.Equal(t, now.Add(pause), step.Record.RetryAt, n)
	}
}

func TestWhatFailedBeforeARequesterWasServedMakesNoLaterAttemptWaitLonger(t *testing.T) {
	failed := now.Add(-time.Hour)
	for name, e := range map[string]struct {
		waits    time.Time
		failures int
	}{
		"served since":                      {now.Add(-time.Second), 1},
		"it has waited since before":        {failed, 6},
		"its status does not say it waits":  {time.Time{}, 6},
		"served until the attempt was made": {failed.Add(time.Second), 6},
	} {
		o := but(with("sleeping"), func(o *Observation) {
			o.Attempt = Attempt{Asked: true, Over: true}
			o.Record.Attempt, o.Record.Failures, o.Record.Failure, o.Record.RetryAt = 9, 5, "boom", failed.Add(time.Minute)
			o.Requester.WaitsSince = e.waits
		})
		step := Decide(o)
		require.Equal(t, "not awake any more", step.Rule)
		assert.Equal(t, 10, step.Record.Attempt)
		assert.Equal(t, e.failures, step.Record.Failures, name)
		assert.Equal(t, now.Add(PauseAfter(FirstPause, e.failures)), step.Record.RetryAt, name)
	}
}

func TestAnOutdatedAttemptIsFollowedAtOnceByOneThatAsksForTheOther(t *testing.T) {
	there := with("sleeping")
	there.Instance.AsleepAt = 70
	for _, e := range []struct {
		o       Observation
		makes   bool // the attempt that is refused
		code    string
		logFrom int64
	}{
		{there, true, launcherapi.CodeExists, 70},
		{recorded(), true, launcherapi.CodeExists, atItsEnd}, // the stream has not told of it yet
		{recorded(), false, launcherapi.CodeNotFound, 0},
		{there, false, launcherapi.CodeNotFound, 0}, // nor that it is gone
	} {
		o := but(e.o, func(o *Observation) { o.Record = new(*o.Record) })
		refusedFor(e.makes, e.code)(&o)
		step := Decide(o)
		require.Equal(t, NextAttempt, step.Do)
		assert.Equal(t, 2, step.Record.Attempt)
		assert.Equal(t, !e.makes, step.Record.New)
		assert.Equal(t, e.logFrom, step.Record.LogFrom)
		assert.Zero(t, step.Record.RetryAt, "there is no pause")
		assert.Empty(t, step.Record.Failure, "nobody is told of a failure")
	}
}

func TestWhatServesTellsFromWhereItsModelCame(t *testing.T) {
	o := servedOne()
	o.Instance.ModelFrom, o.Instance.ModelWhy = "source", "there is no model org/m"
	s := o.Bound().ServingStatus(podmeta.Status{})
	assert.Equal(t, "source", s.ModelFrom)
	assert.Equal(t, "there is no model org/m", s.ModelWhy)
	o.Instance = nil
	assert.Empty(t, o.Bound().ServingStatus(podmeta.Status{}).ModelFrom)
}
