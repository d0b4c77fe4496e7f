package binding

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// repeats counts the writes publish and open gate, by requester. A webhook or another
// controller that reverts them would otherwise get a new write in each pass. One pass of a node
// uses it at a time.
type repeats map[types.UID]map[decide.Action]decide.Repeated

// add counts a write that succeeded, and returns the error of the write.
func (r repeats) add(o decide.Observation, do decide.Action, err error) error {
	if err != nil {
		return err
	}
	counts := r.of(o.Requester.UID)
	if counts == nil {
		counts = map[decide.Action]decide.Repeated{}
	}
	before := counts[do]
	if o.Now.Sub(before.Last) > decide.Settled {
		before.Times = 0
	}
	counts[do] = decide.Repeated{Times: before.Times + 1, Last: o.Now}
	r[o.Requester.UID] = counts
	return nil
}

// of returns the counts for a requester. Later writes do not change them.
func (r repeats) of(uid types.UID) map[decide.Action]decide.Repeated { return maps.Clone(r[uid]) }

// forget removes the counts of requesters that are gone.
func (r repeats) forget(gone func(types.UID) bool) {
	maps.DeleteFunc(r, func(uid types.UID, _ map[decide.Action]decide.Repeated) bool { return gone(uid) })
}
