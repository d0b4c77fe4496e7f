package decide

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

// staying makes a requester one that stays when its instance ends.
func stayingBy(mode podmeta.OnExit, o Observation) Observation {
	o.Requester.OnExit = mode
	return o
}

// diedUnder is a requester whose instance has failed, which its launcher has noted so often, at last
// by the present attempt. It is unready, and shown.
func diedUnder(mode podmeta.OnExit, count int) Observation {
	return but(stayingBy(mode, servedOne()), func(o *Observation) {
		o.Instance.State, o.Instance.Reason, o.SPI.Proxy.Ready = "failed", "exit code 1", false
		o.Failures = &podmeta.Failures{RequesterUID: "uid", Attempt: o.Record.SwapKey(), Count: count, Last: now, Why: "is failed (exit code 1)"}
	})
}

// retracted is one that nothing shows any more.
func retracted(o *Observation) { o.Requester.Published, o.Requester.Shown = false, false }

// recordSays has the record say how the instance ended.
func recordSays(o *Observation) {
	record := *o.Record
	record.Kept = "is failed (exit code 1)"
	o.Record = &record
}

// exits are examples of requesters that stay when their instance ends.
var exits = map[string]example{
	"one that is to restart, its engine killed":            {"died, not noted", NoteFailure, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { o.Failures = nil })},
	"the same, which was noted of an earlier attempt":      {"died, not noted", NoteFailure, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { o.Failures.Attempt = "uid.1.1" })},
	"one that is to restart, its instance deleted by hand": {"died, not noted", NoteFailure, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { o.Instance, o.Failures = nil, nil })},
	"one that is to restart, its end noted":                {"not awake, shown", Retract, diedUnder(podmeta.OnExitRestart, 1)},
	"the same, once nothing shows it any more":             {"ended, restarts", NextAttempt, but(diedUnder(podmeta.OnExitRestart, 1), retracted)},
	"the same, after the controller was started again":     {"ended, restarts", NextAttempt, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { retracted(o); o.Attempt = Attempt{} })},
	"the same, in its next attempt": {"leftover", DeleteInstance, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) {
		retracted(o)
		o.Record.Attempt, o.Attempt = o.Record.Attempt+1, Attempt{}
	})},
	"one that is to restart, while its instance is made again": {"swap under way", Nothing, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) {
		retracted(o)
		o.Record.Attempt, o.Attempt, o.Instance.State = o.Record.Attempt+1, Attempt{Asked: true}, "starting"
	})},
	"one that is to restart, its launcher's container ended": {"unbinding, carries", Unbind, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { retracted(o); crashed(o) })},
	"one that is to restart, whose program refuses to unbind again and again": {"ended, refuses", DeleteRequester, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) {
		retracted(o)
		o.SPI.Proxy.Ready = true
		o.Troubles = map[Action]Trouble{BecomeUnready: {Count: 5}, Unbind: {Count: enoughUnbinds}}
	})},
	"one that is kept, its end noted":        {"died, to be kept", KeepEnded, diedUnder(podmeta.OnExitKeep, 1)},
	"one that is kept, its instance deleted": {"died, to be kept", KeepEnded, but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) { o.Instance = nil })},
	"one that is kept, as its record says":   {"not awake, shown", Retract, but(diedUnder(podmeta.OnExitKeep, 1), recordSays)},
	"the same, retracted":                    {"kept as it ended", Tell, but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) { recordSays(o); retracted(o) })},
	"the same, its configuration changed": {"kept as it ended", Tell, but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) {
		recordSays(o)
		retracted(o)
		o.Form.Args = []string{"org/other"}
	})},
	"the same, its launcher's container started again": {"kept as it ended", Tell, but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) {
		recordSays(o)
		retracted(o)
		o.Instance, o.Attempt = nil, Attempt{}
	})},
	"the same, which is to restart now": {"ended, restarts", NextAttempt, but(diedUnder(podmeta.OnExitRestart, 1), func(o *Observation) { recordSays(o); retracted(o) })},
	"the same, started by hand":         {"not ready", BecomeReady, but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) { recordSays(o); retracted(o); o.Instance.State = "awake" })},
}

func init() { maps.Copy(examples, exits) }

func TestKeptRequesterSaysWhatWouldRestartIt(t *testing.T) {
	o := but(diedUnder(podmeta.OnExitKeep, 1), func(o *Observation) { recordSays(o); retracted(o) })
	assert.Contains(t, Decide(o).Why, "delete the Pod, or change the annotation to Restart")
	o.Requester.Serving = "llama"
	assert.Contains(t, Decide(o).Why, "delete the Pod, or change recoveryPolicy of ModelServing llama to RoleRecreate")
}

func TestInstanceThatEndsAgainIsRestartedLaterInPlace(t *testing.T) {
	for count, pause := range map[int]time.Duration{1: 0, 2: 10 * time.Second, 3: 20 * time.Second, 500: 5 * time.Minute} {
		o := but(diedUnder(podmeta.OnExitRestart, count), retracted)
		o.Record.Failures, o.Record.Kept = 3, "was deleted"
		step := Decide(o)
		require.Equal(t, NextAttempt, step.Do)
		assert.Equal(t, o.Record.Attempt+1, step.Record.Attempt)
		assert.True(t, step.Record.New, "what is left is deleted before")
		assert.Zero(t, step.Record.Failures)
		assert.Empty(t, step.Record.Kept)
		if pause == 0 {
			assert.Zero(t, step.Record.RetryAt)
			continue
		}
		assert.Equal(t, now.Add(pause), step.Record.RetryAt)
	}
}
