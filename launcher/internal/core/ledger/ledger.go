// Package ledger decides which instances fit on a GPU. Its functions are pure: the
// caller passes one World, and they measure nothing themselves.
//
// Words used here:
//
//	charge     the bytes that an instance counts for on a GPU: its measured bytes,
//	           or gpu-memory-utilization × total before the first measurement
//	residue    the device memory that a sleeper still holds on a GPU
//	foreign    device memory used by processes that are not the launcher's
//	reserved   room that a running swap has promised to the instance it brings in
package ledger

import (
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Instance is one instance as the ledger sees it. The keys of the maps are GPU
// UUIDs. A missing key or a zero means "not measured".
type Instance struct {
	ID              string
	State           launcher.State
	Since           time.Time // when the instance entered State
	Released        bool      // the instance has ended, and its device memory is back
	AsleepBeforeEnd bool      // the instance is ending or has ended, and was asleep before
	GPUs            []string
	Expected        map[string]uint64 // expected while awake, from the command line
	Awake           map[string]uint64 // measured when the instance was last awake
	Residue         map[string]uint64 // measured when the instance was last asleep
	Unmeasured      bool              // part of the instance may be awake while it sleeps
	HeldNow         map[string]uint64 // measured for this World
	HostBytes       uint64            // main memory held while asleep
	LastUsed        time.Time
	Pinned          bool
	SwapID          string // the swap that has claimed the instance; empty: none
	Victim          bool   // that swap will evict the instance
	Restarts        bool   // while the instance sleeps, it has no process and holds nothing
}

// GPU is one device as measured.
type GPU struct {
	UUID           string
	TotalBytes     uint64
	UsedBytes      uint64
	ProcessesKnown bool // the driver reports the memory of each process
}

// World is everything that a decision depends on.
type World struct {
	GPUs         map[string]GPU
	Instances    []Instance
	Reservations []launcher.Room // room that running swaps have promised
	Budget       launcherapi.Budget
}

// Instance returns the instance with that id. If there is none, it returns an Instance
// with only the id set.
func (w World) Instance(id string) Instance {
	n := slices.IndexFunc(w.Instances, func(i Instance) bool { return i.ID == id })
	if n < 0 {
		return Instance{ID: id}
	}
	return w.Instances[n]
}

// AwakeBytes returns the device memory that the instance needs on a GPU while awake.
func (i Instance) AwakeBytes(uuid string) (bytes uint64, measured bool) {
	if b := i.Awake[uuid]; b > 0 {
		return b, true
	}
	return i.Expected[uuid], false
}

// Charge returns the bytes that the instance counts for on a GPU in its present
// state.
func (i Instance) Charge(uuid string) (bytes uint64, measured bool) {
	switch {
	case i.Released:
		return 0, true
	case !slices.Contains(i.GPUs, uuid):
		return i.HeldNow[uuid], true // memory of a GPU that it was not given
	case i.State == launcher.Sleeping || i.AsleepBeforeEnd:
		if b := i.HeldNow[uuid]; i.Unmeasured && b == 0 {
			b, _ = i.AwakeBytes(uuid)
			return b, false
		}
		return i.asleepBytes(uuid)
	default:
		b, m := i.AwakeBytes(uuid)
		if i.State == launcher.Awake && i.HeldNow[uuid] > b {
			return i.HeldNow[uuid], true
		}
		return b, m
	}
}

// asleepBytes returns the bytes that the instance holds of a GPU while it sleeps.
func (i Instance) asleepBytes(uuid string) (bytes uint64, measured bool) {
	if b := i.HeldNow[uuid]; b > 0 {
		return b, true
	}
	b := i.Residue[uuid]
	return b, b > 0
}

// Foreign returns the memory of a GPU that other processes than the launcher's use.
func (w World) Foreign(uuid string) uint64 {
	gpu := w.GPUs[uuid]
	var ours uint64
	for _, i := range w.Instances {
		switch {
		case gpu.ProcessesKnown, !slices.Contains(i.GPUs, uuid):
			ours += i.HeldNow[uuid]
		default:
			c, _ := i.Charge(uuid)
			ours += c
		}
	}
	return sub(gpu.UsedBytes, ours)
}

// Reserved returns the memory of a GPU that swaps other than except have reserved,
// and the id of one of these swaps.
func (w World) Reserved(uuid, except string) (bytes uint64, swapID string) {
	for _, r := range w.Reservations {
		if r.SwapID != except && r.Bytes[uuid] > 0 {
			bytes += r.Bytes[uuid]
			swapID = r.SwapID
		}
	}
	return bytes, swapID
}

// Holders lists the instances that count on a GPU, without the instance except.
func (w World) Holders(uuid, except string) []launcherapi.GPUHolder {
	out := make([]launcherapi.GPUHolder, 0, len(w.Instances))
	for _, i := range w.Instances {
		if i.ID == except || i.Released || !slices.Contains(i.GPUs, uuid) && i.HeldNow[uuid] == 0 {
			continue
		}
		bytes, measured := i.Charge(uuid)
		out = append(out, launcherapi.GPUHolder{
			InstanceID: i.ID, State: string(i.State), Bytes: bytes, Measured: measured,
		})
	}
	return out
}

// sub returns a − b, or 0 if b is larger.
func sub(a, b uint64) uint64 {
	if b >= a {
		return 0
	}
	return a - b
}
