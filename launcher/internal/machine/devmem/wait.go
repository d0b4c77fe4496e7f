package devmem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// Bounds of the time between two looks whether device memory has come back: the
// driver has no event for that.
const (
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 50 * time.Millisecond
)

// PollUntil calls done until done says true, ctx ends or ReturnTime is over, and
// returns the last answer of done.
func (m *Meter) PollUntil(ctx context.Context, done func() bool) bool {
	deadline := time.NewTimer(m.opts.ReturnTime)
	defer deadline.Stop()
	wait := shortestPoll
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-timer.C:
			wait = min(wait*3/2, longestPoll)
			timer.Reset(wait)
		case <-deadline.C:
			return done()
		case <-ctx.Done():
			return done()
		}
	}
}

// AwaitFreed waits, after an engine said that it sleeps, until the instance holds
// clearly less memory of each GPU than before (in bytes, by GPU UUID), for at most
// ReturnTime, and gives the memory that the instance still holds. What cannot be read
// counts as held.
func (m *Meter) AwaitFreed(ctx context.Context, id string, uuids []string, before map[string]uint64) map[string]uint64 {
	var now map[string]uint64
	m.PollUntil(ctx, func() bool {
		reading := m.Read(uuids)
		now = map[string]uint64{}
		maps.Copy(now, reading.Held[id])
		for uuid, bytes := range before {
			if _, readable := reading.GPUs[uuid]; !readable && bytes > 0 {
				now[uuid] = bytes
			}
		}
		for uuid, bytes := range before {
			if now[uuid] > bytes/20*19 {
				return false
			}
		}
		return true
	})
	return now
}

// AwaitReturned waits until the driver counts none of those processes (by GPU UUID)
// on its GPU any more. The error says which GPU's memory did not come back in time.
func (m *Meter) AwaitReturned(ctx context.Context, holders map[string][]int) error {
	for id, pids := range holders {
		var left uint64
		var last error
		back := m.PollUntil(ctx, func() bool {
			var memory gpu.Memory
			memory, last = m.opts.GPUs.Memory(id)
			left = heldBy(memory, pids)
			return last == nil && left == 0
		})
		if last != nil {
			return fmt.Errorf("cannot tell whether the memory of GPU %s has come back: %w", id, last)
		}
		if !back {
			return fmt.Errorf("%s of GPU %s had not come back %s after its processes were gone", launcher.ExactBytesText(left), id, m.opts.ReturnTime)
		}
	}
	return nil
}

func heldBy(memory gpu.Memory, pids []int) (bytes uint64) {
	for _, p := range memory.Processes {
		if slices.Contains(pids, p.PID) {
			bytes += p.Bytes
		}
	}
	return bytes
}

// AwaitFree waits until that many bytes of each GPU (by UUID) are free, as the
// driver says, for at most ReturnTime.
func (m *Meter) AwaitFree(ctx context.Context, need map[string]uint64) error {
	for id, bytes := range need {
		if err := m.awaitFree(ctx, id, func(gpu.Memory) uint64 { return bytes }); err != nil {
			return err
		}
	}
	return nil
}

// AwaitRoom waits as AwaitFree does until an instance can have that many bytes of each GPU.
// What it holds already is room for it; if the driver lists none of its processes, that is
// its residue.
func (m *Meter) AwaitRoom(ctx context.Context, id string, want, residue map[string]uint64) error {
	for uuid, bytes := range want {
		err := m.awaitFree(ctx, uuid, func(memory gpu.Memory) uint64 {
			held := uint64(0)
			m.eachHolder(map[string]gpu.Memory{uuid: memory}, func(_, owner string, p gpu.Process) {
				if owner == id {
					held += p.Bytes
				}
			})
			if held == 0 {
				held = residue[uuid]
			}
			return bytes - min(bytes, held)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitFree waits until as many bytes of a GPU are free as need says.
func (m *Meter) awaitFree(ctx context.Context, uuid string, need func(gpu.Memory) uint64) error {
	var memory gpu.Memory
	var bytes uint64
	var err error
	ok := m.PollUntil(ctx, func() bool {
		if memory, err = m.opts.GPUs.Memory(uuid); err != nil {
			return false
		}
		bytes = need(memory)
		return memory.FreeBytes >= bytes
	})
	switch {
	case ok:
		return nil
	case err != nil:
		return fmt.Errorf("cannot read the memory of GPU %s: %w", uuid, err)
	}
	return fmt.Errorf("%s of GPU %s are needed, and only %s were free after %s", launcher.ExactBytesText(bytes), uuid, launcher.ExactBytesText(memory.FreeBytes), m.opts.ReturnTime)
}
