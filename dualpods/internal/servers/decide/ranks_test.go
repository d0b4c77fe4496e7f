package decide

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// worker makes a requester the second rank of two, which was told of the start by its record.
func worker(o Observation) Observation {
	o.Requester.Rank = podmeta.Rank{Index: 1, Size: 2}
	o.Form.Rank = o.Requester.Rank
	if o.Record != nil {
		record := *o.Record
		record.SpecHash = o.Form.Hash()
		o.Record = &record
		o.Requester.Server = podmeta.Server{Attempt: record.SwapKey(), Group: "g", Entry: "10.1.0.2:20001"}
	}
	return o
}

// ranks are examples of ranks of servers over several launchers.
var ranks = map[string]example{
	"a rank that is not bound":                                   {"no record", AddRecord, worker(fresh())},
	"a rank whose others lack":                                   {"others not there", Tell, but(worker(recorded()), func(o *Observation) { o.Requester.Server = podmeta.Server{} })},
	"a sleeping one whose others lack":                           {"others not there", Tell, but(worker(with("sleeping")), func(o *Observation) { o.Requester.Server = podmeta.Server{} })},
	"a rank told of an earlier start":                            {"others not there", Tell, but(worker(recorded()), func(o *Observation) { o.Record.Attempt = 2 })},
	"a rank told of the start":                                   {"swap not asked", Swap, worker(recorded())},
	"a rank whose launcher has an earlier process's swap for it": {"swap not heard", Swap, but(worker(with("awake")), func(o *Observation) { o.Instance.SwapID = "swap-1" })},
	"the same, while it starts":                                  {"swap not heard", Swap, but(worker(with("starting")), func(o *Observation) { o.Instance.SwapID = "swap-1" })},
	"the same, which this process has asked for": {"swap under way", Nothing, but(worker(with("awake")), func(o *Observation) {
		o.Instance.SwapID, o.Attempt.Asked = "swap-1", true
	})},
	"a leaving rank that waits for its commit":             {"resting, held in its swap", DeleteInstance, leavingRank("swap-1", false, 0)},
	"a leaving rank that leaves in another's swap":         {"resting, awake", Sleep, leavingRank("swap-1", true, 0)},
	"a leaving rank that was served":                       {"resting, awake", Sleep, leavingRank("", true, 0)},
	"a leaving worker that was told to sleep in vain":      {"resting, never sleeps", DeleteInstance, leavingRank("", true, 1)},
	"an instance that is no rank, in a swap of somebody's": {"carries nothing", Bind, but(with("awake"), func(o *Observation) { o.Instance.SwapID = "swap-1" })},
	"a worker that lists the gate holds nothing": {"swap under way", Nothing, but(worker(with("awake")), func(o *Observation) {
		o.Requester.Gate, o.SPI.Proxy.CanHold, o.Attempt.Asked = true, true, true
	})},
	"a rank that is told of a change": {"change not noted", ChangeRecord, toldWorker()},
	"a rank whose change is noted":    {"change waits for ranks", Nothing, notedWorker()},
	"a rank whose next instance was made since its change was noted": {"change noted otherwise", ChangeRecord, but(notedWorker(), func(o *Observation) {
		o.NextInstance = &launcherapi.Instance{InstanceID: o.Record.Change.Instance, State: "sleeping", AsleepAt: 7}
	})},
	"a rank that was told of the start of the new server": {"change not asked", Swap, startedWorker()},
	"the same, and its next instance is there already": {"change not asked", Swap, but(startedWorker(), func(o *Observation) {
		o.NextInstance = &launcherapi.Instance{InstanceID: o.Record.Change.Instance, State: "starting", SwapID: "swap-1"}
	})},
	"a rank whose change is withdrawn before it was told of the start": {"change withdrawn, waits", CallOff, but(notedWorker(), withdrawn)},
	"a worker that is awake": {"carries nothing", Bind, worker(with("awake"))},
	"a worker that is bound": {"not ready", BecomeReady, but(worker(with("awake")), func(o *Observation) {
		o.SPI.Proxy = requesterapi.Proxy{ProxyConfig: o.Awake().Proxy(), State: requesterapi.StateBound}
	})},
}

// leavingRank is a worker whose requester is being deleted, with the swap that its instance is in.
// over means that the swap of its record is over.
func leavingRank(swap string, over bool, slept int) Observation {
	return but(worker(with("awake")), func(o *Observation) {
		o.Requester.Deleting = true
		o.Instance.Rank, o.Instance.SwapID = &launcherapi.Rank{Group: "g", Index: 1, Size: 2}, swap
		o.Attempt.Asked, o.Attempt.Over = true, over
		o.Troubles = map[Action]Trouble{Sleep: {Count: slept, Why: "its entry has ended"}}
	})
}

// toldWorker is a rank that is served, and was told of a change to another model in place.
func toldWorker() Observation {
	o := worker(servedOne())
	o.SPI.Proxy.ProxyConfig = o.Awake().Proxy()
	o.Form.Args, o.Requester.SwapTo = told().Form.Args, told().Requester.SwapTo
	return o
}

// notedWorker is a rank whose record has the change.
func notedWorker() Observation {
	o := toldWorker()
	record := Decide(o).Record
	o.Record = &record
	return o
}

// startedWorker is a rank that was told of the start of the new server.
func startedWorker() Observation {
	o := notedWorker()
	o.Requester.NextServer = podmeta.Server{Attempt: o.Record.Next().SwapKey(), Group: "h", Entry: "10.1.0.2:20015"}
	return o
}

func init() { maps.Copy(examples, ranks) }

func TestRankKeepsTheAttemptOfItsChange(t *testing.T) {
	o := startedWorker()
	next := o.Record.Next()
	o.NextAttempt = Attempt{Asked: true, Over: true}
	o.Instance.State, o.NextInstance = "sleeping", &launcherapi.Instance{InstanceID: next.Instance, State: "awake"}
	unreadied(&o)
	record := Decide(o).Record
	assert.Equal(t, *next, record, "a process that has just begun asks for the swap in the same words")
	o.Record, o.Instance, o.NextInstance = &record, o.NextInstance, nil
	o.Requester.Server, o.Attempt, o.NextAttempt = o.Requester.NextServer, Attempt{}, Attempt{}
	assert.Equal(t, "not awake any more", Decide(but(o, func(o *Observation) {
		o.Attempt, o.Instance.State = Attempt{Asked: true, Over: true}, "sleeping"
	})).Rule)
	o.Instance.SwapID = "swap-1"
	assert.Equal(t, "swap not heard", Decide(o).Rule)
}

func TestChangeOfARankIsNotedAgainInOtherWords(t *testing.T) {
	o := notedWorker()
	assert.True(t, o.Record.Change.New)
	o.NextInstance = &launcherapi.Instance{InstanceID: o.Record.Change.Instance, State: "sleeping", AsleepAt: 7}
	again := Decide(o).Record.Change
	assert.Equal(t, []any{false, int64(7), o.Record.Change.Since}, []any{again.New, again.LogFrom, again.Since})
}

func TestNoTrafficIsLedToAWorker(t *testing.T) {
	o := worker(with("awake"))
	assert.Equal(t, requesterapi.ProxyConfig{Binding: o.Record.SwapKey(), ServingPort: 8000, NoTraffic: true}, o.Awake().Proxy())
	o.Requester.Rank.Index = 0
	assert.Equal(t, "10.1.0.2", o.Awake().Proxy().Address, "the entry answers requests")
}
