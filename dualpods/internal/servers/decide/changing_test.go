package decide

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
)

// told is one that is served, and was told of a change to another model in place.
func told() Observation {
	o := servedOne()
	o.Form.Args = []string{"org/other"}
	o.Requester.SwapTo = podmeta.SwapTo{Revision: "r", Try: 1}
	return o
}

// noted is one whose record has the change.
func noted() Observation {
	o := told()
	record := Decide(o).Record
	o.Record = &record
	return o
}

// changingIn is one whose swap is in a phase.
func changingIn(phase string) Observation {
	o := noted()
	o.NextAttempt = Attempt{Asked: true, Phase: phase}
	if phase != launcherapi.PhaseAdmit && phase != launcherapi.PhaseGo {
		o.Instance = &launcherapi.Instance{InstanceID: "model-1", State: "sleeping", SwapID: "swap-1"}
		o.NextInstance = &launcherapi.Instance{InstanceID: o.Record.Change.Instance, State: "awake", Port: 40002, SwapID: "swap-1"}
		unreadied(&o)
	}
	return o
}

// secondTry is one whose change was undone before, and is to wake an instance that is not there any more.
func secondTry() Observation {
	o := told()
	o.Requester.SwapTo.Try = 2
	record := Decide(o).Record
	record.Change.New, o.Record = false, &record
	return o
}

func sleepsNext(o *Observation) {
	o.NextInstance = &launcherapi.Instance{InstanceID: o.Record.Change.Instance, State: "sleeping"}
}

// unreadied has clients kept from the requester.
func unreadied(o *Observation) {
	o.SPI.Proxy.Ready, o.Requester.Shown, o.Requester.Published = false, false, false
}

// committed is one whose swap of the change has ended well.
func committed() Observation {
	return but(changingIn(launcherapi.PhaseCommit), func(o *Observation) {
		o.NextAttempt.Over = true
		o.Instance.SwapID, o.NextInstance.SwapID = "", ""
	})
}

// crowdedChange is one whose swap was refused, since sleepers of another launcher hold the memory.
func crowdedChange() Observation {
	o := noted()
	o.NextAttempt = crowded().Attempt
	o.NextAttempt.Code, o.Neighbours = launcherapi.CodeDoesNotFit, beside("sleeping", gib)
	return o
}

func failedChange(o *Observation) {
	change := *o.Record.Change
	change.Failure = "the engine ended"
	record := *o.Record
	record.Change, o.Record = &change, &record
	o.NextAttempt = Attempt{Asked: true, Over: true, Failure: change.Failure}
	o.Instance.SwapID, o.NextInstance = "", nil
}

func withdrawn(o *Observation) {
	o.Requester.SwapTo = podmeta.SwapTo{}
	o.Form.Args = []string{"org/model"}
}

func forwarded(o *Observation) { o.Requester.SwapTo.Forward = true }

func unasked(o *Observation) { o.NextAttempt = Attempt{} }

// changes are examples of requesters whose model is changed in place.
var changes = map[string]example{
	"one that is told of a change": {"change not noted", ChangeRecord, told()},
	"one that is told of the change that made its record": {"", Nothing, but(servedOne(), func(o *Observation) {
		o.Requester.SwapTo.Revision, o.Requester.SwapTo.Try, o.Record.ChangedBy = "r", 1, "r.1"
	})},
	"one that is told, and asks for what it has":                                       {"nothing to change", ChangeRecord, but(told(), func(o *Observation) { o.Form.Args, o.Form.Port = []string{"org/model"}, 8001 })},
	"one that is told, and whose input is wrong":                                       {"cannot be changed", ChangeRecord, but(told(), func(o *Observation) { o.Problems = []podmeta.Problem{{Message: "is wrong"}} })},
	"one that is told, and asks for another LauncherConfig":                            {"cannot be changed", ChangeRecord, but(told(), func(o *Observation) { o.Form.LauncherConfig = "other" })},
	"one that is told before it is served":                                             {"resting, swap waits", CallOff, but(recorded(), func(o *Observation) { o.Requester.SwapTo, o.Form.Args = told().Requester.SwapTo, told().Form.Args })},
	"one whose change is noted":                                                        {"change not asked", Swap, noted()},
	"one that wakes an instance at its second try":                                     {"left of an earlier try", DeleteInstance, but(secondTry(), sleepsNext)},
	"the same, which is being deleted":                                                 {"left of an earlier try, being deleted", Nothing, but(secondTry(), func(o *Observation) { sleepsNext(o); o.NextInstance.State = "stopping" })},
	"the same, which is gone":                                                          {"change noted otherwise", ChangeRecord, secondTry()},
	"one that wakes an instance at its first try":                                      {"change not asked", Swap, but(noted(), func(o *Observation) { o.Record.Change.New = false; sleepsNext(o) })},
	"one that starts an instance at its second try, for a process that has just begun": {"change not asked", Swap, but(secondTry(), func(o *Observation) { o.Record.Change.New = true; sleepsNext(o) })},
	"one whose input was edited before its swap":                                       {"change outdated", ChangeRecord, but(noted(), func(o *Observation) { o.Form.Args = []string{"org/third"} })},
	"one whose input became wrong before its swap":                                     {"change outdated", ChangeRecord, but(noted(), func(o *Observation) { o.Problems = []podmeta.Problem{{Message: "is wrong"}} })},
	"one whose swap waits for its turn":                                                {"change under way", Nothing, changingIn(launcherapi.PhaseAdmit)},
	"one that has prepared, and is ready":                                              {"change prepared, ready", BecomeUnready, changingIn(launcherapi.PhaseGo)},
	"one that has prepared, and is shown":                                              {"change prepared, shown", Retract, but(changingIn(launcherapi.PhaseGo), func(o *Observation) { o.SPI.Proxy.Ready = false })},
	"one that has prepared, and stays ready though told":                               {"change prepared, shown", Retract, but(changingIn(launcherapi.PhaseGo), func(o *Observation) { refusedOf(o, BecomeUnready) })},
	"one that has prepared, and nobody is led to it":                                   {"change under way", Nothing, but(changingIn(launcherapi.PhaseGo), unreadied)},
	"one that waits for its commit":                                                    {"change under way", Nothing, changingIn(launcherapi.PhaseCommit)},
	"the same, for a process that has just begun":                                      {"change not asked", Swap, but(changingIn(launcherapi.PhaseCommit), unasked)},
	"one that is committed":                                                            {"changed", ChangeRecord, committed()},
	"the same, for a process that has just begun, committed":                           {"changed", ChangeRecord, but(committed(), unasked)},
	"one that is committed, and slept by hand since":                                   {"changed", ChangeRecord, but(committed(), func(o *Observation) { o.NextInstance.State = "sleeping" })},
	"one whose swap came to nothing": {"change failed", ChangeRecord, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) {
		o.NextAttempt, o.NextInstance, o.Instance.SwapID = Attempt{Asked: true, Over: true, Failure: "the engine ended"}, nil, ""
	})},
	"one whose swap lacks memory that sleepers of another launcher hold": {"change makes room", Evict, crowdedChange()},
	"the same, once they are asked to go": {"change failed", ChangeRecord, but(crowdedChange(), func(o *Observation) {
		o.NextAttempt.Evicted = []string{o.Neighbours[0].Key()}
	})},
	"one whose change failed, and which is served": {"not ready", BecomeReady, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) {
		failedChange(o)
		o.Instance = &launcherapi.Instance{InstanceID: "model-1", State: "awake", Port: 40001}
	})},
	"one whose change failed, and whose model sleeps":        {"change failed, noted", Nothing, but(changingIn(launcherapi.PhaseCommit), failedChange)},
	"one whose change failed, and whose group is changed":    {"change goes on", ChangeRecord, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) { failedChange(o); forwarded(o) })},
	"the same, and its swap is being undone":                 {"change failed, noted", Nothing, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) { failedChange(o); forwarded(o); o.Instance.SwapID = "swap-1" })},
	"one whose change is withdrawn before its swap":          {"change withdrawn, waits", CallOff, but(noted(), withdrawn)},
	"one whose change is withdrawn as it has prepared":       {"change withdrawn, waits", CallOff, but(changingIn(launcherapi.PhaseGo), withdrawn)},
	"one whose change is withdrawn as its engine is healthy": {"change withdrawn, under way", Nothing, but(changingIn(launcherapi.PhaseCommit), withdrawn)},
	"one whose swap is called off": {"change withdrawn, under way", Nothing, but(changingIn(launcherapi.PhaseGo), func(o *Observation) {
		withdrawn(o)
		o.Calls.NextCallOff, o.Calls.NextCallingOff = true, true
	})},
	"one whose swap was called off":                     {"change withdrawn", ChangeRecord, but(noted(), func(o *Observation) { withdrawn(o); o.Calls.NextCallOff = true })},
	"one whose change failed and is withdrawn":          {"change withdrawn", ChangeRecord, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) { failedChange(o); withdrawn(o) })},
	"one that is told of the next try":                  {"change withdrawn", ChangeRecord, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) { failedChange(o); o.Requester.SwapTo.Try = 2 })},
	"one that is deleted, whose change is noted":        {"resting, change waits", CallOff, but(noted(), leavesNow)},
	"one that is deleted in the middle of its change":   {"resting, change under way", Nothing, but(changingIn(launcherapi.PhaseDrain), func(o *Observation) { leavesNow(o); o.NextInstance = nil })},
	"one that is deleted as its next engine is healthy": {"resting, change held", DeleteInstance, but(changingIn(launcherapi.PhaseCommit), leavesNow)},
	"one that is deleted as its change is committed":    {"resting, changed", ChangeRecord, but(committed(), leavesNow)},
	"one that is deleted after its change, with its next instance": {"resting, awake", Sleep, but(committed(), func(o *Observation) {
		o.Record, o.Instance = new(Decide(*o).Record), o.NextInstance
		leavesNow(o)
	})},
	"one that is deleted, whose change failed": {"resting, asleep or gone", RemoveRecord, but(changingIn(launcherapi.PhaseCommit), func(o *Observation) { failedChange(o); leavesNow(o) })},
	"one that is deleted, and cannot be changed": {"resting, awake", Sleep, but(told(), func(o *Observation) {
		o.Problems = []podmeta.Problem{{Message: "is wrong"}}
		r := Decide(*o).Record
		o.Record = &r
		leavesNow(o)
	})},
}

// leavesNow has a requester be deleted whose program carries nothing any more.
func leavesNow(o *Observation) {
	o.Requester.Deleting = true
	unreadied(o)
	o.SPI.Proxy.State, o.SPI.Proxy.Binding = "unbound", ""
}

func init() { maps.Copy(examples, changes) }

func TestRecordHasBothModelsUntilItIsChanged(t *testing.T) {
	o := told()
	record := Decide(o).Record
	assert.Equal(t, "model-1", record.Instance)
	change := record.Change
	assert.Equal(t, []any{"r.1", form.InstanceID(o.Form, []string{"GPU-0"}), true, o.Form.Hash(), now}, []any{change.To, change.Instance, change.New, change.SpecHash, change.Since})
	o.NextInstance = &launcherapi.Instance{State: "sleeping", AsleepAt: 7}
	assert.Equal(t, []any{false, int64(7)}, []any{Decide(o).Record.Change.New, Decide(o).Record.Change.LogFrom}, "it sleeps here")

	after := Decide(committed()).Record
	assert.Equal(t, []any{change.Instance, "r.1", 2}, []any{after.Instance, after.ChangedBy, after.Attempt})
	assert.Nil(t, after.Change)
	assert.True(t, after.HasKey(noted().Record.Next().SwapKey()))
	before := Decide(but(noted(), func(o *Observation) { withdrawn(o); o.Calls.NextCallOff = true })).Record
	assert.Equal(t, *told().Record, before)
}

func TestFailureOfAChangeSaysWhetherItWasRefused(t *testing.T) {
	for code, misfit := range map[string]bool{launcherapi.CodeDoesNotFit: true, launcherapi.CodeEngineFailed: false} {
		o := changingIn(launcherapi.PhaseAdmit)
		o.NextAttempt = Attempt{Asked: true, Over: true, Failure: "it failed", Code: code}
		change := Decide(o).Record.Change
		assert.Equal(t, []any{"it failed", misfit}, []any{change.Failure, change.Misfit})
	}
	o := crowdedChange()
	assert.Equal(t, o.Neighbours, Neighbours(Decide(o).Victims))
	assert.True(t, Decide(o).OfNext, "they go for the swap of the change")
	o.NextAttempt.Evicted = []string{o.Neighbours[0].Key()}
	assert.False(t, Decide(o).Record.Change.Misfit, "the next try may have room")
	change := Decide(but(told(), func(o *Observation) { o.Form.LauncherConfig = "other" })).Record.Change
	assert.True(t, change.Misfit)
	assert.Contains(t, change.Failure, "it asks for LauncherConfig other, and is bound to launcher launcher-0")
}

func TestChangeThatGoesOnIsAnAttemptOfTheNewModel(t *testing.T) {
	o := changingIn(launcherapi.PhaseCommit)
	next := o.Record.Change.Instance
	failedChange(&o)
	forwarded(&o)
	record := Decide(o).Record
	assert.Equal(t, []any{next, 2, 1, "the engine ended", now.Add(time.Second), true}, []any{record.Instance, record.Attempt, record.Failures, record.Failure, record.RetryAt, record.New})
	o = but(told(), func(o *Observation) {
		forwarded(o)
		o.Instance.State = "sleeping"
		o.Record.Change = &podmeta.Change{To: "r.1", Failure: "no room"}
	})
	unreadied(&o)
	assert.Equal(t, next, Decide(o).Record.Instance, "it failed before there was an instance")
}
