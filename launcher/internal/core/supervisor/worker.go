package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/devmem"
)

// This file sees by the device memory of a worker whether it has loaded, sleeps or is awake.

// measureWorker measures the device memory of a worker that a swap has brought in. The commit of a
// swap also tells that the server of the worker answers, so that the worker has loaded.
func (c *Claim) measureWorker(committed bool) {
	s := c.s
	s.mu.Lock()
	i := c.in
	s.mu.Unlock()
	if i == nil || !i.isWorker() {
		return
	}
	now := s.sample(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state != launcher.Awake {
		return
	}
	if committed {
		i.noteLoaded(now)
	} else {
		i.noteMeasured(now.held)
	}
	i.confirmed = i.confirmed || committed || i.facts.isLoaded(now.held)
}

// noteLoaded records the device memory of a worker that is known to have loaded, however little it
// is. It records 0 bytes of a GPU, as for an engine on a CPU, if the worker's processes hold nothing
// there, and all processes together use less than half of what is expected of the worker. Its
// sleep could not show in the used memory, which cannot fall by that half. The lock is held.
func (i *instance) noteLoaded(now memorySample) {
	measured := map[string]uint64{}
	maps.Copy(measured, i.awakeBytes)
	for uuid, half := range i.halves() {
		held := now.held[uuid]
		used, readable := now.used[uuid]
		if held > 0 || readable && used < half {
			measured[uuid] = held
		}
	}
	i.awakeBytes = measured
}

// noteMeasured records the device memory that a worker holds while it is awake. It ignores less
// than half of what is expected, and clearly less than before: the worker may still load, or may
// sleep already. The lock is held.
func (i *instance) noteMeasured(held map[string]uint64) {
	measured := map[string]uint64{}
	maps.Copy(measured, i.awakeBytes)
	for uuid, bytes := range held {
		if bytes > 0 && bytes >= max(i.awakeBytes[uuid]/20*19, i.facts.Expected[uuid]/2) {
			measured[uuid] = bytes
		}
	}
	i.awakeBytes = measured
}

// isLoaded reports whether held is at least half of the expected device memory of each GPU.
func (f *facts) isLoaded(held map[string]uint64) bool {
	return !slices.ContainsFunc(f.Spec.GPUUUIDs, func(uuid string) bool { return held[uuid] < f.Expected[uuid]/2 })
}

// isConfirmed reports whether an instance is known to have loaded, which a worker does while it
// counts as awake. A worker without device memory is confirmed at once. The lock is held.
func (i *instance) isConfirmed() bool {
	return i.confirmed || !i.isWorker() || i.facts.isLoaded(nil)
}

// unconfirmedError returns why an instance cannot be put to sleep yet; nil: it can, as far as this
// tells. A worker that still loads would take its device memory after that. The lock is held.
func (i *instance) unconfirmedError() error {
	if i.state != launcher.Awake || i.isConfirmed() {
		return nil
	}
	return launcher.Conflictf("cannot put instance %s to sleep: the launcher has not seen that this worker has loaded; wait until it holds its device memory; if its device memory cannot be seen, bring it in by a swap with \"until\": \"healthy\", and commit that", i.facts.ID)
}

// confirmWorkers confirms the workers that have loaded. The lock is held.
func (s *Supervisor) confirmWorkers(memory devmem.Reading) {
	for id, held := range memory.Held {
		i, ok := s.instances[id]
		if ok && !i.state.Ended() && !i.isConfirmed() && i.facts.isLoaded(held) {
			i.confirmed = true
			s.write(i)
		}
	}
}

// unconfirmedGPUs returns the GPUs of an instance that is not confirmed yet; otherwise none.
func (s *Supervisor) unconfirmedGPUs(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.instances[id]; ok && !i.isConfirmed() {
		return i.gpus()
	}
	return nil
}

// loadPoll is the time between two looks whether a worker has loaded.
const loadPoll = 250 * time.Millisecond

// confirmOnceLoaded looks at the device memory of a worker until the worker is confirmed or has
// ended.
func (s *Supervisor) confirmOnceLoaded(i *instance) {
	tick := time.NewTicker(loadPoll)
	defer tick.Stop()
	for {
		var uuids []string
		if s.areReadable(i.gpus()) {
			uuids = i.gpus()
		}
		s.lockWithMemory(uuids)
		confirmed := i.isConfirmed()
		s.mu.Unlock()
		if confirmed {
			return
		}
		select {
		case <-tick.C:
		case <-i.whenReleased:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// halves returns half of the device memory that a worker holds of each GPU while it is awake, as
// measured or else as expected. 0: it holds none. The lock is held.
func (i *instance) halves() map[string]uint64 {
	half := map[string]uint64{}
	for _, uuid := range i.gpus() {
		bytes, measured := i.awakeBytes[uuid]
		if !measured {
			bytes = i.facts.Expected[uuid]
		}
		half[uuid] = bytes / 2
	}
	return half
}

// isAsleepOn reports whether a worker holds at most half of its device memory of a GPU. If the
// driver lists none of its processes, all used memory has to fall by that half. A worker without
// device memory is believed.
func (now memorySample) isAsleepOn(uuid string, half uint64, before memorySample) bool {
	used, readable := now.used[uuid]
	was, wasReadable := before.used[uuid]
	switch {
	case !readable:
		return false
	case half == 0:
		return true
	case now.held[uuid] > 0:
		return now.held[uuid] <= half
	}
	return wasReadable && used+half <= was
}

// awakeSign says why a worker does not count as asleep on a GPU.
func (now memorySample) awakeSign(uuid string, half uint64) string {
	_, readable := now.used[uuid]
	switch {
	case !readable:
		return fmt.Sprintf("the memory of GPU %s cannot be read", uuid)
	case now.held[uuid] > 0:
		return fmt.Sprintf("it still holds %s of GPU %s", launcher.BytesText(now.held[uuid]), uuid)
	}
	return fmt.Sprintf("the driver lists no process of it on GPU %s, and the used memory of that GPU has not fallen by %s", uuid, launcher.BytesText(half))
}

// firstGPU returns the first GPU of an instance for which is holds; empty: none.
func (i *instance) firstGPU(is func(uuid string) bool) string {
	if n := slices.IndexFunc(i.gpus(), is); n >= 0 {
		return i.gpus()[n]
	}
	return ""
}

// isAwakeOn reports whether a worker holds the needed device memory of a GPU. If the driver lists
// none of its processes, all used memory has to rise by half of it. A worker without device memory
// is believed.
func (now memorySample) isAwakeOn(uuid string, need, half uint64, before memorySample) bool {
	used, readable := now.used[uuid]
	was, wasReadable := before.used[uuid]
	switch {
	case !readable:
		return false
	case half == 0:
		return true
	case now.held[uuid] > 0:
		return now.held[uuid] >= need
	}
	return wasReadable && used >= was+half
}

// seeAsleep waits until a worker has given back its device memory, since the entry was put to
// sleep. The drain of the entry comes before that. before is from the beginning of the sleep.
func (s *Supervisor) seeAsleep(i *instance, op *operation, before memorySample) {
	began := time.Now()
	s.mu.Lock()
	i.noteMeasured(before.held)
	half := i.halves()
	s.mu.Unlock()
	var now memorySample
	var lasting string // a GPU whose memory has not gone
	seen := s.see(op, func() bool {
		now = s.sample(i)
		lasting = i.firstGPU(func(uuid string) bool { return !now.isAsleepOn(uuid, half[uuid], before) })
		return lasting == ""
	})
	residue := s.heldBytes(i)
	if !seen {
		s.endOperation(i, op, launcher.EventSleepRefused, func() {
			when, why := op.waited()
			op.err = fmt.Errorf("did not fall asleep %s: %s; tell the launcher of the entry to put its server to sleep, too: %w", when, now.awakeSign(lasting, half[lasting]), why)
			i.reason, i.cause = op.err.Error(), "sleep_failed"
		})
		return
	}
	s.endOperation(i, op, launcher.EventSlept, func() {
		i.addTiming("sleep", time.Since(began))
		i.residue = residue
	})
}

// awakeNeeds returns how much device memory of each GPU a worker has to hold to count as awake:
// about as much as was measured, or else half of what is expected. A sleep frees what allocators
// had cached, and that does not come back with the wake. The lock is held.
func (i *instance) awakeNeeds() map[string]uint64 {
	need := i.halves()
	for uuid, bytes := range i.awakeBytes {
		need[uuid] = max(need[uuid], bytes-min(bytes, max(sampleNoise, bytes/4)))
	}
	return need
}

// seeAwake waits until a worker holds its device memory again, since the entry was woken. before
// is from the beginning of the wake. If the wait ends while the worker holds more than half of its
// device memory of a GPU, the worker counts as awake: it does not sleep.
func (s *Supervisor) seeAwake(i *instance, op *operation, before memorySample) {
	began := time.Now()
	s.mu.Lock()
	need, half := i.awakeNeeds(), i.halves()
	s.mu.Unlock()
	var now memorySample
	var lacking string // a GPU whose memory has not come back
	seen := s.see(op, func() bool {
		now = s.sample(i)
		lacking = i.firstGPU(func(uuid string) bool { return !now.isAwakeOn(uuid, need[uuid], half[uuid], before) })
		return lacking == ""
	})
	if !seen && !slices.ContainsFunc(i.gpus(), func(uuid string) bool { return now.held[uuid] > half[uuid] }) {
		s.endOperation(i, op, launcher.EventWakeRefused, func() {
			when, why := op.waited()
			op.err = fmt.Errorf("did not wake %s: its device memory of GPU %s has not come back; the entry of its server was not woken: %w", when, lacking, why)
			i.reason, i.cause = op.err.Error(), "wake_failed"
		})
		return
	}
	s.endOperation(i, op, launcher.EventWoke, func() {
		i.addTiming("wake", time.Since(began))
		i.hostBytes, i.sleepUnknown, i.confirmed = 0, false, true
		i.noteMeasured(now.held)
		if !seen {
			when, _ := op.waited()
			i.reason = fmt.Sprintf("did not wake as a whole %s: its device memory of GPU %s has not come back; it counts as awake, since it holds more than half of its device memory of a GPU", when, lacking)
		}
	})
}

// waited says for how long the device memory of a worker was waited for in vain, and returns why
// the wait ended. The lock is held.
func (op *operation) waited() (when string, why error) {
	if op.cutShort {
		return "before the undo of its swap ended the wait", errCutShort
	}
	return "within " + op.limit.String(), context.DeadlineExceeded
}

// see waits until seen says true, for at most the time of the operation.
func (s *Supervisor) see(op *operation, seen func() bool) bool {
	ctx, stop := s.boundAnswer(op)
	defer stop()
	for {
		if s.meter.PollUntil(ctx, seen) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
}
