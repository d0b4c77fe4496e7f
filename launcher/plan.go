package launcher

import (
	"slices"
	"time"
)

// Plan says what a swap does. The request fills in SwapID, In, Stop, Level, Drain and
// Until, and the Room of a new instance. The ledger decides the rest. After that the
// plan never changes: the launcher saves it, executes it and reports it.
type Plan struct {
	SwapID string        `json:"swap_id"`
	GPUs   []string      `json:"gpus,omitempty"`  // UUIDs of the GPUs on which the swap has its turn
	In     string        `json:"in,omitempty"`    // id of the instance that comes in; empty: none
	Room   *Room         `json:"room,omitempty"`  // the room that In needs; nil: In is already awake, or there is no In
	Out    []string      `json:"out,omitempty"`   // ids of the instances that are awake on the GPUs and leave
	Stop   bool          `json:"stop,omitempty"`  // stop the instances that leave once In is awake; until then they sleep
	Level  int           `json:"level"`           // sleep level of the instances that leave
	Evict  []string      `json:"evict,omitempty"` // ids of the sleepers to evict first, in that order
	Drain  time.Duration `json:"drain"`           // time limit for the answers in flight of the instances that leave
	Until  time.Time     `json:"until"`           // deadline of the swap
}

// CreatesIn reports whether the swap creates the instance that comes in.
func (p Plan) CreatesIn() bool { return p.Room != nil && p.Room.New }

// NothingToDo reports whether the plan changes nothing.
func (p Plan) NothingToDo() bool { return len(p.Out) == 0 && p.Room == nil }

// Parties lists the ids of the existing instances that the plan names.
func (p Plan) Parties() []string {
	all := slices.Concat(p.Out, p.Evict)
	if p.In != "" && !p.CreatesIn() {
		all = append(all, p.In)
	}
	return all
}

// Room is what an instance, existing or new, needs to be awake on its GPUs.
type Room struct {
	ID     string            `json:"id"`                // id of the instance
	Bytes  map[string]uint64 `json:"bytes"`             // needed while awake, by GPU UUID
	New    bool              `json:"new,omitempty"`     // the instance does not exist yet: it needs a place under max_instances
	SwapID string            `json:"swap_id,omitempty"` // the swap that asks; its own reservation does not count against it
}
