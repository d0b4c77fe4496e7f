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

func init() { maps.Copy(examples, ranks) }

func TestNoTrafficIsLedToAWorker(t *testing.T) {
	o := worker(with("awake"))
	assert.Equal(t, requesterapi.ProxyConfig{Binding: o.Record.SwapKey(), ServingPort: 8000, NoTraffic: true}, o.Awake().Proxy())
	o.Requester.Rank.Index = 0
	assert.Equal(t, "10.1.0.2", o.Awake().Proxy().Address, "the entry answers requests")
}
