package supervisor

import (
	"context"
	"maps"
	"slices"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/ledger"
	"hotseat.dev/hotseat/launcher/internal/machine/devmem"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// everyGPU returns the UUIDs of all GPUs.
func (s *Supervisor) everyGPU() []string {
	var ids []string
	for _, d := range s.opts.GPUs.Devices() {
		ids = append(ids, d.UUID)
	}
	return ids
}

// freshReads bounds how often memory is read again because an instance has changed
// meanwhile: the reading and the states of the instances have to match.
const freshReads = 3

// lockWithMemory reads the memory of GPUs and takes the lock. It updates residues that have
// become smaller, and confirms the workers that have loaded.
func (s *Supervisor) lockWithMemory(uuids []string) devmem.Reading {
	for try := 1; ; try++ {
		before := s.opts.Feed.Revision()
		memory := s.meter.Read(uuids)
		s.mu.Lock()
		if try == freshReads || s.opts.Feed.Revision() == before {
			s.noteResidues(memory)
			s.confirmWorkers(memory)
			return memory
		}
		s.mu.Unlock()
	}
}

// noteResidues updates the residue of sleepers that hold clearly less than when they fell
// asleep: memory may come back later than memory_timeout. If a driver reports no memory for
// a sleeper, its residue stays. The lock is held.
func (s *Supervisor) noteResidues(memory devmem.Reading) {
	for id, held := range memory.Held {
		i, ok := s.instances[id]
		if !ok || i.state != launcher.Sleeping {
			continue
		}
		less := maps.Clone(i.residue)
		for uuid, bytes := range held {
			if bytes > 0 && bytes < less[uuid]/20*19 {
				less[uuid] = bytes
			}
		}
		if !maps.Equal(less, i.residue) {
			i.residue = less
			s.publish(i, launcherapi.EventUpdated)
		}
	}
}

// world returns the ledger's World of this moment. The lock is held.
func (s *Supervisor) world(memory devmem.Reading) ledger.World {
	w := ledger.World{GPUs: map[string]ledger.GPU{}, Budget: s.opts.Budget, Reservations: s.reservations()}
	for _, d := range s.opts.GPUs.AllDevices() {
		m := memory.GPUs[d.UUID]
		w.GPUs[d.UUID] = ledger.GPU{
			UUID: d.UUID, TotalBytes: d.MemoryTotalBytes, UsedBytes: m.UsedBytes,
			ProcessesKnown: m.ProcessesKnown && !s.driverOmitsEngine(d.UUID, memory),
		}
	}
	w.Instances = make([]ledger.Instance, 0, len(s.instances))
	for _, i := range s.sorted() {
		held := memory.Held[i.facts.ID]
		if i.released {
			held = nil // the instance's processes are gone; other processes may have their ids now
		}
		w.Instances = append(w.Instances, i.entry(held))
	}
	return w
}

// driverOmitsEngine reports whether the driver does not list an engine that must hold
// memory of the GPU. In a container with its own process ids, the driver's list is empty or
// has the ids of the host. The lock is held.
func (s *Supervisor) driverOmitsEngine(uuid string, memory devmem.Reading) bool {
	for id, i := range s.instances {
		if i.state == launcher.Awake && slices.Contains(i.gpus(), uuid) && memory.Held[id][uuid] == 0 {
			return true
		}
	}
	return false
}

// heldBytes returns the device memory that an instance's processes hold now, by GPU. It
// leaves out GPUs of which they hold nothing.
func (s *Supervisor) heldBytes(i *instance) map[string]uint64 {
	return s.meter.Held(i.facts.ID, i.gpus())
}

// bytesBeforeSleep returns the device memory that an instance holds before its sleep. If an
// earlier launcher began that sleep, the instance may have given back its memory already.
// Then the bytes measured while it was awake count or, without a measurement, the expected
// bytes. ctx bounds the question to the engine.
func (s *Supervisor) bytesBeforeSleep(ctx context.Context, i *instance, op *operation) map[string]uint64 {
	before := s.heldBytes(i)
	if !op.resumed {
		return before
	}
	asleep, err := i.isSleeping(ctx)
	asleep = asleep && err == nil // no answer counts as no
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]uint64{}
	maps.Copy(out, i.facts.Expected)
	for id, bytes := range i.awakeBytes {
		if bytes > 0 { // a driver may list a process without its bytes
			out[id] = bytes
		}
	}
	for id, bytes := range before {
		if !asleep {
			out[id] = max(out[id], bytes)
		}
	}
	return out
}

// Needs returns, by instance and GPU, the device memory that each needs while it is awake: what
// was measured or, before that, what its engine is expected to take.
func (s *Supervisor) Needs() map[string]map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]map[string]uint64, len(s.instances))
	for id, i := range s.instances {
		all[id] = i.entry(nil).Want("").Bytes
	}
	return all
}

// GPUs returns every device with the instances on it.
func (s *Supervisor) GPUs() launcherapi.GPUList {
	memory := s.meter.Read(s.everyGPU())
	health := map[string]gpu.Health{}
	for _, d := range s.opts.GPUs.Devices() {
		health[d.UUID] = s.opts.GPUs.Health(d.UUID)
	}
	served, waiting := s.opts.Turns.Counts()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmWorkers(memory)
	w := s.world(memory)
	list := launcherapi.GPUList{
		Source: s.opts.GPUs.Kind(), Budgets: s.opts.Budget, HostSleepers: w.HostSleeperBytes(),
		QueuedSwaps: waiting, ActiveSwaps: served, InstanceCount: len(w.Instances), GPUs: []launcherapi.GPU{},
	}
	for _, d := range s.opts.GPUs.Devices() {
		m, health := memory.GPUs[d.UUID], health[d.UUID]
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
