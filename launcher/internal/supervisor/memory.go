package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/gpu"
	"hotseat.dev/hotseat/launcher/internal/ledger"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// memory reads the memory of GPUs. One that cannot be read is left out and
// logged: the ledger then knows its total alone.
func (s *Supervisor) memory(uuids []string) map[string]gpu.Memory {
	out := make(map[string]gpu.Memory, len(uuids))
	for _, id := range uuids {
		m, err := s.opts.GPUs.Memory(id)
		if err != nil {
			s.log.Warn("cannot read the memory of a GPU", "gpu", id, "error", err)
			continue
		}
		out[id] = m
	}
	return out
}

// everyGPU lists the UUIDs.
func (s *Supervisor) everyGPU() []string {
	var ids []string
	for _, d := range s.opts.GPUs.Devices() {
		ids = append(ids, d.UUID)
	}
	return ids
}

// freshReads is how often memory is read again when something happened to an
// instance meanwhile: what was read and what is known would not fit together.
const freshReads = 3

// lockWithMemory reads the memory of GPUs and takes the lock.
func (s *Supervisor) lockWithMemory(uuids []string) reading {
	for try := 1; ; try++ {
		before := s.opts.Feed.Revision()
		memory := s.read(uuids)
		s.mu.Lock()
		if try == freshReads || s.opts.Feed.Revision() == before {
			return memory
		}
		s.mu.Unlock()
	}
}

// world is the ledger's picture of now. The lock is held.
func (s *Supervisor) world(memory reading) ledger.World {
	w := ledger.World{GPUs: map[string]ledger.GPU{}, Budget: s.opts.Budget, Reservations: s.reservations()}
	now := s.attribute(memory)
	for _, d := range s.opts.GPUs.Devices() {
		m := memory.gpus[d.UUID]
		w.GPUs[d.UUID] = ledger.GPU{
			UUID: d.UUID, TotalBytes: d.MemoryTotalBytes, UsedBytes: m.UsedBytes,
			ProcessesKnown: m.ProcessesKnown && !s.unlisted(d.UUID, now),
		}
	}
	w.Instances = make([]ledger.Instance, 0, len(s.instances))
	for _, i := range s.sorted() {
		w.Instances = append(w.Instances, i.entry(now[i]))
	}
	return w
}

// unlisted says whether an engine that must hold memory of a GPU is not among
// the processes that the driver lists there: in a container with process ids
// of its own the list is empty, or has the ids of the host. The lock is held.
func (s *Supervisor) unlisted(uuid string, now map[*instance]map[string]uint64) bool {
	for _, i := range s.instances {
		if i.state == launcher.Awake && slices.Contains(i.gpus(), uuid) && now[i][uuid] == 0 {
			return true
		}
	}
	return false
}

// measure is the device memory that an instance holds now, by GPU; what is
// zero is left out.
func (s *Supervisor) measure(i *instance) map[string]uint64 {
	if len(i.gpus()) == 0 {
		return nil
	}
	var out map[string]uint64
	s.eachHolder(i, func(uuid string, p gpu.Process) {
		if out == nil {
			out = map[string]uint64{}
		}
		out[uuid] += p.Bytes
	})
	return out
}

// holdsBefore is the device memory that an instance holds before its sleep. One
// that an earlier life of the launcher has told to sleep may have given it back:
// then what it held while it was awake counts, as far as that is known.
func (s *Supervisor) holdsBefore(i *instance, op *operation) map[string]uint64 {
	before := s.measure(i)
	if !op.resumed {
		return before
	}
	asleep := s.sleeps(op.ctx, i)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]uint64{}
	maps.Copy(out, i.awakeBytes)
	for id, bytes := range before {
		if !asleep {
			out[id] = max(out[id], bytes)
		}
	}
	return out
}

// Bounds of the time between two looks at device memory that is on its way
// back: the driver tells nobody when it is.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 50 * time.Millisecond
)

// look calls done until it says true, ctx ends or the time that memory may
// take is over, and returns what done said last.
func (s *Supervisor) look(ctx context.Context, done func() bool) bool {
	deadline := time.NewTimer(s.opts.Limits.Memory)
	defer deadline.Stop()
	wait := shortestLook
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-timer.C:
			wait = min(wait*3/2, longestLook)
			timer.Reset(wait)
		case <-deadline.C:
			return done()
		case <-ctx.Done():
			return done()
		}
	}
}

// awaitFreed waits, after an engine said that it sleeps, until its device
// memory has come back, and gives what it still holds. An engine whose memory
// did not change at all within the limit is left at that.
func (s *Supervisor) awaitFreed(ctx context.Context, i *instance, before map[string]uint64) map[string]uint64 {
	var now map[string]uint64
	s.look(ctx, func() bool {
		now = s.measure(i)
		for id, b := range before {
			if now[id] > b/20*19 {
				return false
			}
		}
		return true
	})
	return now
}

// awaitReturned waits until none of those processes is counted on its GPU any
// more. The error says which GPU's memory did not come back in time.
func (s *Supervisor) awaitReturned(ctx context.Context, held map[string][]int) error {
	for id, pids := range held {
		var left uint64
		back := s.look(ctx, func() bool {
			m, err := s.opts.GPUs.Memory(id)
			if err != nil {
				return false
			}
			left = 0
			for _, p := range m.Processes {
				if slices.Contains(pids, p.PID) {
					left += p.Bytes
				}
			}
			return left == 0
		})
		if !back {
			return fmt.Errorf("%d bytes of GPU %s had not come back %s after its processes were gone", left, id, s.opts.Limits.Memory)
		}
	}
	return nil
}

// AwaitFree waits until that many bytes of each GPU are free, as the driver
// says, for at most the time that memory may take to come back.
func (s *Supervisor) AwaitFree(ctx context.Context, need map[string]uint64) error {
	for id, bytes := range need {
		var free uint64
		var last error
		ok := s.look(ctx, func() bool {
			m, err := s.opts.GPUs.Memory(id)
			free, last = m.FreeBytes, err
			return err == nil && free >= bytes
		})
		if ok {
			continue
		}
		if last != nil {
			return fmt.Errorf("cannot read the memory of GPU %s: %w", id, last)
		}
		return fmt.Errorf("%d bytes of GPU %s are needed, and only %d were free after %s", bytes, id, free, s.opts.Limits.Memory)
	}
	return nil
}

// GPUs shows every device with everything known to be on it.
func (s *Supervisor) GPUs() launcherapi.GPUList {
	memory := s.read(s.everyGPU())
	health := map[string]gpu.Health{}
	for _, d := range s.opts.GPUs.Devices() {
		health[d.UUID] = s.opts.GPUs.Health(d.UUID)
	}
	served, waiting := s.opts.Turns.Counts()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.world(memory)
	list := launcherapi.GPUList{
		Source: s.opts.GPUs.Kind(), Budgets: s.opts.Budget, HostSleepers: w.HostSleeperBytes(),
		QueuedSwaps: waiting, ActiveSwaps: served, InstanceCount: len(w.Instances), GPUs: []launcherapi.GPU{},
	}
	for _, d := range s.opts.GPUs.Devices() {
		m, health := memory.gpus[d.UUID], health[d.UUID]
		g := launcherapi.GPU{
			UUID: d.UUID, Index: d.Index, Product: d.Product, MIG: d.MIG, Healthy: health.OK, HealthReason: health.Reason,
			MemoryTotalBytes: d.MemoryTotalBytes, MemoryUsedBytes: m.UsedBytes, MemoryFreeBytes: m.FreeBytes,
			ForeignBytes: w.Foreign(d.UUID), SwapID: s.opts.Turns.Holder(d.UUID),
		}
		g.ReservedBytes, _ = w.Reserved(d.UUID, "")
		holders := w.Holders(d.UUID, "")
		g.Awake, g.Sleepers = []launcherapi.GPUHolder{}, make([]launcherapi.GPUHolder, 0, len(holders))
		for _, h := range holders {
			if h.State == "sleeping" {
				g.Sleepers = append(g.Sleepers, h)
			} else {
				g.Awake = append(g.Awake, h)
			}
		}
		list.GPUs = append(list.GPUs, g)
	}
	return list
}
