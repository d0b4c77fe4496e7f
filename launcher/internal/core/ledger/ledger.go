// Package ledger decides which instances fit on a GPU. Its functions are pure: they
// are given one picture of the world, answer with numbers, and read nothing
// themselves.
//
// Words used here:
//
//	charge     what an instance is counted with on a GPU: its measured bytes, or
//	           gpu-memory-utilization × total before the first measurement
//	residue    what a sleeper still holds on a GPU
//	foreign    memory used by processes that are not the launcher's
//	reserved   room that a running swap has promised to the instance it brings in
package ledger

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instance is one instance as the ledger sees it. The maps are keyed by GPU
// UUID; a missing key or a zero means "not measured".
type Instance struct {
	ID       string
	State    launcher.State
	Since    time.Time // when the instance came into that state
	Released bool      // ended, and its device memory is back
	Slept    bool      // is ending or has ended, and was asleep until then
	GPUs     []string
	Expected map[string]uint64 // awake, from its command line
	Awake    map[string]uint64 // measured when it was last awake
	Residue  map[string]uint64 // measured when it was last asleep
	Now      map[string]uint64 // measured now
	Host     uint64            // main memory held while asleep
	LastUsed time.Time
	Pinned   bool
	SwapID   string // of the swap that has claimed the instance; empty: none has
	Victim   bool   // that swap is going to evict the instance
}

// GPU is one device as measured.
type GPU struct {
	UUID           string
	TotalBytes     uint64
	UsedBytes      uint64
	ProcessesKnown bool // the driver says how much each process holds
}

// World is the one picture that a decision is made from.
type World struct {
	GPUs         map[string]GPU
	Instances    []Instance
	Reservations []Want // the room that running swaps have promised
	Budget       launcherapi.Budget
}

// Instance finds an instance; the zero Instance when there is none of that id.
func (w World) Instance(id string) Instance {
	n := slices.IndexFunc(w.Instances, func(i Instance) bool { return i.ID == id })
	if n < 0 {
		return Instance{ID: id}
	}
	return w.Instances[n]
}

// AwakeBytes is what the instance needs on a GPU while awake.
func (i Instance) AwakeBytes(uuid string) (bytes uint64, measured bool) {
	if b := i.Awake[uuid]; b > 0 {
		return b, true
	}
	return i.Expected[uuid], false
}

// Charge is what the instance is counted with on a GPU in its present state.
func (i Instance) Charge(uuid string) (bytes uint64, measured bool) {
	switch {
	case i.Released || !slices.Contains(i.GPUs, uuid):
		return 0, true
	case i.State == launcher.Sleeping || i.Slept:
		if b := i.Now[uuid]; b > 0 {
			return b, true
		}
		b := i.Residue[uuid]
		return b, b > 0
	default:
		b, m := i.AwakeBytes(uuid)
		if i.State == launcher.Awake && i.Now[uuid] > b {
			return i.Now[uuid], true
		}
		return b, m
	}
}

// Foreign is the memory of a GPU that is used by processes which are not the
// launcher's, or by instances which were not given that GPU.
func (w World) Foreign(uuid string) uint64 {
	gpu := w.GPUs[uuid]
	var ours uint64
	for _, i := range w.Instances {
		switch {
		case !slices.Contains(i.GPUs, uuid):
		case gpu.ProcessesKnown:
			ours += i.Now[uuid]
		default:
			c, _ := i.Charge(uuid)
			ours += c
		}
	}
	return sub(gpu.UsedBytes, ours)
}

// Reserved is the memory of a GPU that swaps other than except have promised, and
// the id of one of those swaps.
func (w World) Reserved(uuid, except string) (bytes uint64, swapID string) {
	for _, r := range w.Reservations {
		if r.SwapID != except && r.Bytes[uuid] > 0 {
			bytes += r.Bytes[uuid]
			swapID = r.SwapID
		}
	}
	return bytes, swapID
}

// Holders lists the instances that are counted on a GPU, without the instance
// except.
func (w World) Holders(uuid, except string) []launcherapi.GPUHolder {
	out := make([]launcherapi.GPUHolder, 0, len(w.Instances))
	for _, i := range w.Instances {
		if i.ID == except || i.Released || !slices.Contains(i.GPUs, uuid) {
			continue
		}
		bytes, measured := i.Charge(uuid)
		out = append(out, launcherapi.GPUHolder{
			InstanceID: i.ID, State: string(i.State), Bytes: bytes, Measured: measured,
		})
	}
	return out
}

// sub is a − b, and 0 where b is larger.
func sub(a, b uint64) uint64 {
	if b >= a {
		return 0
	}
	return a - b
}
