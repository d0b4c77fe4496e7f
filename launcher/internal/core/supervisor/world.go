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

// everyGPU lists the UUIDs of all GPUs.
func (s *Supervisor) everyGPU() []string {
	var ids []string
	for _, d := range s.opts.GPUs.Devices() {
		ids = append(ids, d.UUID)
	}
	return ids
}

// freshReads is how often memory is read at most until no instance changes
// meanwhile: else the reading and the states of the instances would not fit
// together.
const freshReads = 3

// lockWithMemory reads the memory of GPUs and takes the lock. It notes residues
// that have become less.
func (s *Supervisor) lockWithMemory(uuids []string) devmem.Reading {
	for try := 1; ; try++ {
		before := s.opts.Feed.Revision()
		memory := s.meter.Read(uuids)
		s.mu.Lock()
		if try == freshReads || s.opts.Feed.Revision() == before {
			s.noteResidues(memory)
			return memory
		}
		s.mu.Unlock()
	}
}

// noteResidues notes which sleepers hold clearly less than was measured when they
// fell asleep: memory may come back later than memory_timeout. A driver that lists
// no memory for a sleeper says nothing about its residue. The lock is held.
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

// world is the ledger's picture of the present. The lock is held.
func (s *Supervisor) world(memory devmem.Reading) ledger.World {
	w := ledger.World{GPUs: map[string]ledger.GPU{}, Budget: s.opts.Budget, Reservations: s.reservations()}
	for _, d := range s.opts.GPUs.Devices() {
		m := memory.GPUs[d.UUID]
		w.GPUs[d.UUID] = ledger.GPU{
			UUID: d.UUID, TotalBytes: d.MemoryTotalBytes, UsedBytes: m.UsedBytes,
			ProcessesKnown: m.ProcessesKnown && !s.unlisted(d.UUID, memory),
		}
	}
	w.Instances = make([]ledger.Instance, 0, len(s.instances))
	for _, i := range s.sorted() {
		held := memory.Held[i.facts.ID]
		if i.released {
			held = nil // the instance's processes are gone: those that have their ids now are strangers
		}
		w.Instances = append(w.Instances, i.entry(held))
	}
	return w
}

// unlisted says whether an engine that must hold memory of a GPU is not among
// the processes that the driver lists there: in a container with process ids
// of its own the list is empty, or has the ids of the host. The lock is held.
func (s *Supervisor) unlisted(uuid string, memory devmem.Reading) bool {
	for id, i := range s.instances {
		if i.state == launcher.Awake && slices.Contains(i.gpus(), uuid) && memory.Held[id][uuid] == 0 {
			return true
		}
	}
	return false
}

// held is the device memory that an instance's processes hold now, by GPU; GPUs
// of which they hold nothing are left out.
func (s *Supervisor) held(i *instance) map[string]uint64 { return s.meter.Held(i.facts.ID, i.gpus()) }

// holdsBefore is the device memory that an instance holds before its sleep. An
// instance that an earlier life of the launcher has told to sleep may have given
// its memory back already: then what it held while awake counts, or where that was
// never measured, what it was expected to hold. ctx bounds the question to its engine.
func (s *Supervisor) holdsBefore(ctx context.Context, i *instance, op *operation) map[string]uint64 {
	before := s.held(i)
	if !op.resumed {
		return before
	}
	asleep, err := i.asleep(ctx)
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

// GPUs shows every device with the instances on it.
func (s *Supervisor) GPUs() launcherapi.GPUList {
	memory := s.meter.Read(s.everyGPU())
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
