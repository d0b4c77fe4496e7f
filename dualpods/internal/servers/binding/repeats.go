package binding

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// repeats counts the writes publish and open gate, by requester. A webhook or another
// controller that reverts them would otherwise get a new write in each pass. One pass of a node
// uses it at a time.
type repeats map[types.UID][]repeat

// repeat counts one kind of writes. There are at most two kinds: a list takes a tenth of the memory
// of a map.
type repeat struct {
	do    decide.Action
	count decide.Repeated
}

// add counts a write that succeeded, and returns the error of the write.
func (r repeats) add(o decide.Observation, do decide.Action, err error) error {
	if err != nil {
		return err
	}
	all := r[o.Requester.UID]
	at := slices.IndexFunc(all, func(one repeat) bool { return one.do == do })
	if at < 0 {
		at, all = len(all), append(all, repeat{do: do})
	}
	count := &all[at].count
	if o.Now.Sub(count.Last) > decide.Settled {
		count.Times = 0
	}
	count.Times, count.Last = count.Times+1, o.Now
	r[o.Requester.UID] = all
	return nil
}

// of returns the counts for a requester. Later writes do not change them.
func (r repeats) of(uid types.UID) map[decide.Action]decide.Repeated {
	if len(r[uid]) == 0 {
		return nil
	}
	counts := make(map[decide.Action]decide.Repeated, len(r[uid]))
	for _, one := range r[uid] {
		counts[one.do] = one.count
	}
	return counts
}

// forget removes the counts of requesters that are gone.
func (r repeats) forget(gone func(types.UID) bool) {
	maps.DeleteFunc(r, func(uid types.UID, _ []repeat) bool { return gone(uid) })
}

// seated forgets what a seat was told of its earlier model, and how often that was written, once it has another model.
func (n *nodeWork) seated(seat types.UID, with string) {
	if was, known := n.assigned[seat]; known && was != with {
		delete(n.told, seat)
		delete(n.repeats, seat)
	}
	n.assigned[seat] = with
}
