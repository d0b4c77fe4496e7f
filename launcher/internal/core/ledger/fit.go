package ledger

import (
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// BoundDeviceMemory is the bound of a refusal for lack of device memory.
const BoundDeviceMemory = launcherapi.BoundDeviceMemory

// Names of the budgets, as in the configuration.
const (
	BoundMaxSleepersPerGPU     = "max_sleepers_per_gpu"
	BoundMaxSleeperBytesPerGPU = "max_sleeper_bytes_per_gpu"
	BoundMaxHostSleeperBytes   = "max_host_sleeper_bytes"
	BoundMaxInstances          = "max_instances"
)

// Want returns the room that the instance needs to be awake. swapID names the swap that
// asks; empty: a client asks.
func (i Instance) Want(swapID string) launcher.Room {
	want := launcher.Room{ID: i.ID, SwapID: swapID, Bytes: map[string]uint64{}}
	for _, uuid := range i.GPUs {
		want.Bytes[uuid], _ = i.AwakeBytes(uuid)
	}
	return want
}

// Admit reports whether the wanted instance can be awake beside everything that the
// World holds now. It evicts no sleeper: only a swap makes room. The error has code
// does_not_fit and holds the numbers.
func Admit(w World, want launcher.Room) error {
	if want.New {
		if err := w.admitNewInstance(want.SwapID); err != nil {
			return err
		}
	}
	for _, uuid := range sortedKeys(want.Bytes) {
		if err := w.admitOnGPU(uuid, want); err != nil {
			return err
		}
	}
	return nil
}

func (w World) admitNewInstance(swapID string) error {
	limit := w.Budget.MaxInstances
	live := 0
	for _, i := range w.Instances {
		if !i.State.Ended() {
			live++
		}
	}
	places, by := w.promisedPlaces(swapID)
	if limit == 0 || live+places < limit {
		return nil
	}
	reserved := ""
	if places > 0 {
		reserved = fmt.Sprintf(" and swaps are about to create %d", places)
	}
	return launcher.DoesNotFit(launcherapi.Fit{
		Bound: BoundMaxInstances, Needed: 1, Limit: uint64(limit), ReservedBy: by,
	}, "%d instances are running%s, and max_instances is %d; delete one first", live, reserved, limit)
}

// promisedPlaces counts the instances that swaps other than except will create, and
// names one of these swaps. It leaves out a new instance that takes the place of a
// victim that still lives.
func (w World) promisedPlaces(except string) (count int, swapID string) {
	for _, r := range w.Reservations {
		victim := slices.ContainsFunc(w.Instances, func(i Instance) bool {
			return i.Victim && i.SwapID == r.SwapID && !i.State.Ended()
		})
		if r.New && r.SwapID != except && !victim {
			count, swapID = count+1, r.SwapID
		}
	}
	return count, swapID
}

func (w World) admitOnGPU(uuid string, want launcher.Room) error {
	free, foreign := w.freeFor(uuid, want)
	need := want.Bytes[uuid]
	if need <= free {
		return nil
	}
	_, reservedBy := w.Reserved(uuid, want.SwapID)
	fit := launcherapi.Fit{
		GPUUUID: uuid, Bound: BoundDeviceMemory,
		Needed: need, Available: free, Limit: w.GPUs[uuid].TotalBytes,
		Holders: w.Holders(uuid, want.ID), Foreign: foreign, ReservedBy: reservedBy,
	}
	return launcher.DoesNotFit(fit, "%s needs %s of GPU %s, but only %s of its %s are free: %s",
		displayName(want.ID), launcher.BytesText(need), uuid, launcher.BytesText(free), launcher.BytesText(fit.Limit), fitText(fit))
}

// freeFor returns the memory of a GPU that is left for the wanted instance: the total
// less the charges of other instances, foreign memory and the reservations of other
// swaps.
func (w World) freeFor(uuid string, want launcher.Room) (free, foreign uint64) {
	var taken uint64
	for _, i := range w.Instances {
		if i.ID != want.ID {
			c, _ := i.Charge(uuid)
			taken += c
		}
	}
	foreign = w.Foreign(uuid)
	reserved, _ := w.Reserved(uuid, want.SwapID)
	return sub(w.GPUs[uuid].TotalBytes, taken+foreign+reserved), foreign
}

func fitText(fit launcherapi.Fit) string {
	var parts []string
	for _, h := range fit.Holders {
		if h.Bytes == 0 {
			continue
		}
		how := "expected"
		if h.Measured {
			how = "measured"
		}
		parts = append(parts, fmt.Sprintf("%s (%s) holds %s, %s", h.InstanceID, h.State, launcher.BytesText(h.Bytes), how))
	}
	if fit.Foreign > 0 {
		parts = append(parts, "other processes hold "+launcher.BytesText(fit.Foreign))
	}
	if fit.ReservedBy != "" {
		parts = append(parts, "swap "+fit.ReservedBy+" has reserved the rest")
	}
	if len(parts) == 0 {
		return "that is all the GPU has"
	}
	return strings.Join(parts, "; ")
}

func displayName(id string) string {
	if id == "" {
		return "the new instance"
	}
	return id
}

func sortedKeys(m map[string]uint64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
