package supervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// This file compares what an engine reports of itself with the device memory that it
// holds. An engine can report that it sleeps while part of it is awake: a wake in several
// calls was cut, or failed on one of several GPUs. In that state vLLM ignores a sleep.

// memorySample is the device memory of an instance's GPUs at one moment, in bytes by UUID.
type memorySample struct {
	held map[string]uint64 // by the instance's processes; a GPU is missing if its driver lists none of them
	used map[string]uint64 // by all processes
}

// sampleNoise is a difference between two samples that says nothing: drivers and
// allocators round, and contexts grow.
const sampleNoise = 256 << 20

// holdsMoreError says how much more device memory an engine holds than it should.
type holdsMoreError string

func (e holdsMoreError) Error() string { return string(e) }

func (s *Supervisor) sample(i *instance) memorySample {
	memory := s.meter.Read(i.gpus())
	out := memorySample{held: memory.Held[i.facts.ID], used: map[string]uint64{}}
	for uuid, m := range memory.GPUs {
		out.used[uuid] = m.UsedBytes
	}
	return out
}

// sampleAsleep returns the sample of an instance that sleeps and is about to wake. known is
// false if there is no measurement, or not of every GPU. [instance.mostAsleep] counts for a GPU
// whose driver does not answer, and for all GPUs if part of the instance may be awake already:
// an earlier launcher began the wake, or nobody has measured the instance since its last wake
// failed.
func (s *Supervisor) sampleAsleep(i *instance, op *operation) (before memorySample, known bool) {
	var now memorySample
	if !op.resumed {
		now = s.sample(i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before.held = i.mostAsleep()
	if op.resumed || i.unmeasured {
		return before, len(i.residue) > 0
	}
	before.used = now.used
	for uuid := range now.used {
		before.held[uuid] = now.held[uuid]
	}
	return before, len(now.used) == len(i.gpus())
}

// mostAsleep returns how much of each GPU's memory the instance holds at most while it sleeps:
// its residue. If the residue is not known, that is a quarter of what the instance holds awake:
// engines hold far less asleep. A residue of about all that it holds awake was not measured,
// since the driver did not answer after the sleep. The lock is held.
func (i *instance) mostAsleep() map[string]uint64 {
	most := map[string]uint64{}
	for uuid, awake := range i.entry(nil).Want("").Bytes {
		most[uuid] = i.residue[uuid]
		if most[uuid] == 0 || awake > 0 && most[uuid] > awake/20*19 {
			most[uuid] = awake / 4
		}
	}
	return most
}

// moreThan returns an error unless the instance holds about as much device memory as before,
// or less. It compares all used memory of a GPU whose driver did not list the instance's
// processes both times. A driver that answered before and does not now is an error too.
func (now memorySample) moreThan(before memorySample) error {
	for _, uuid := range slices.Sorted(maps.Keys(before.used)) {
		if _, measured := now.used[uuid]; !measured {
			return fmt.Errorf("it reports that it sleeps, and the driver of GPU %s does not tell whether it does", uuid)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(now.used)) {
		was, is := before.held[uuid], now.held[uuid]
		if was == 0 || is == 0 {
			is = now.used[uuid]
			var measured bool
			if was, measured = before.used[uuid]; !measured {
				continue
			}
		}
		if is > was+sampleNoise {
			return holdsMoreError(fmt.Sprintf("it reports that it sleeps, but holds %s of GPU %s more than before", launcher.BytesText(is-was), uuid))
		}
	}
	return nil
}

// lessThan returns an error if the instance holds much less device memory than before: the
// engine has lost a part of what it needs. A sleep also frees what allocators had cached, and
// that does not come back with the wake.
func (now memorySample) lessThan(before memorySample) error {
	for _, uuid := range slices.Sorted(maps.Keys(before.held)) {
		was, is := before.held[uuid], now.held[uuid]
		if is > 0 && is+max(sampleNoise, was/4) < was { // zero: the driver does not list the instance's processes
			return fmt.Errorf("it reports that it is awake, but holds %s of GPU %s less than before", launcher.BytesText(was-is), uuid)
		}
	}
	return nil
}

// freedLate is how long after a sleep device memory may come back. resleepAfter is the same
// where Resleep frees what does not: after level 2.
const (
	freedLate    = 2500 * time.Millisecond
	resleepAfter = 500 * time.Millisecond
)

// backToSleep puts an engine whose wake has failed back to sleep. It returns once the
// instance holds no more device memory than before the wake. If it still holds more some
// seconds later, the error says how much: whoever was awake before waits for that memory. If
// a driver does not answer, as before the wake, backToSleep has the instance measured once it
// does.
func (s *Supervisor) backToSleep(ctx context.Context, i *instance, op *operation, before memorySample, known bool) error {
	if err := s.awaitLevel(i, op); err != nil {
		return err
	}
	if err := i.inPlace().Sleep(ctx, i.engineURL(), op.level, true); err != nil {
		return err
	}
	late := freedLate
	if op.level == 2 {
		late = resleepAfter
	}
	if known {
		if now, err := s.awaitNoMore(ctx, late, i, before); err == nil && now.isOfAll(i) {
			return nil
		}
	}
	if err := i.inPlace().Resleep(ctx, i.engineURL(), op.level); err != nil {
		return err
	}
	now, err := s.awaitNoMore(ctx, freedLate, i, before)
	if err == nil && !now.isOfAll(i) {
		s.measureAsleepLater(i)
	}
	return err
}

// awaitNoMore waits until the instance holds no more device memory than before, and returns
// what it holds. The error says how much more that is after that time.
func (s *Supervisor) awaitNoMore(ctx context.Context, limit time.Duration, i *instance, before memorySample) (now memorySample, err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	s.meter.PollUntil(ctx, func() bool {
		now = s.sample(i)
		err = now.moreThan(before)
		return err == nil
	})
	return now, err
}

// isOfAll reports whether the memory of each GPU of the instance could be read.
func (now memorySample) isOfAll(i *instance) bool { return len(now.used) == len(i.gpus()) }

// wakeAgain wakes an engine whose sleep has failed. The error says that the instance holds
// less device memory than before its sleep, or answers otherwise than when it was started.
func (s *Supervisor) wakeAgain(ctx context.Context, i *instance, op *operation, before map[string]uint64) error {
	if err := i.inPlace().Wake(ctx, i.engineURL(), op.level, true); err != nil {
		return err
	}
	if err := s.heldAgain(i, op, before); err != nil {
		return err
	}
	return s.compare(ctx, i)
}

// heldAgain returns an error if the instance holds less device memory than before its sleep.
// For a GPU whose driver did not answer before, what the instance held when it was last
// measured awake counts. If a driver does not answer now, heldAgain has the instance checked
// once it does.
func (s *Supervisor) heldAgain(i *instance, op *operation, before map[string]uint64) error {
	if op.resumed {
		return nil
	}
	now := s.sample(i)
	was := memorySample{held: map[string]uint64{}}
	s.mu.Lock()
	maps.Copy(was.held, i.awakeBytes)
	s.mu.Unlock()
	maps.Copy(was.held, before)
	if err := now.lessThan(was); err != nil {
		return err
	}
	if !now.isOfAll(i) {
		s.measureLater(i, was)
	}
	return nil
}

// measureLater has an instance checked once the drivers of its GPUs answer, unless an earlier
// check still waits for that.
func (s *Supervisor) measureLater(i *instance, before memorySample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !i.toBeMeasured {
		i.toBeMeasured = true
		s.spawn(func() { s.checkOnceMeasured(i, before) })
	}
}

// checkOnceMeasured ends the engine of an instance whose sleep has failed if it holds less
// device memory than before, once the drivers of its GPUs answer and it is awake.
func (s *Supervisor) checkOnceMeasured(i *instance, before memorySample) {
	for s.awaitDrivers(i) {
		var since time.Time
		awake := false
		if _, err := s.await(s.ctx, i, func() bool {
			since, awake = i.since, i.state == launcher.Awake
			return awake || i.state == launcher.Stopping || i.state.Ended()
		}); err != nil || !awake {
			return
		}
		now := s.sample(i)
		if now.isOfAll(i) && s.endIfLess(i, since, now.lessThan(before)) {
			return
		}
	}
}

// endIfLess ends the engine of an instance that has been awake since then, if less is not nil.
// It returns false if the instance has left that state.
func (s *Supervisor) endIfLess(i *instance, since time.Time, less error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.state != launcher.Awake || !i.since.Equal(since) {
		return false
	}
	i.toBeMeasured = false
	if less == nil {
		return true
	}
	if err := s.transition(i, launcher.EventTimedOut, func() {
		i.cause = "sleep_failed"
		i.reason = fmt.Sprintf("its sleep failed while the driver of a GPU did not answer, and now the driver answers: %v; the launcher has ended it, and a swap to it starts it again", less)
	}); err != nil {
		s.log.Error("cannot end an instance that has lost device memory", "error", err)
	}
	return true
}
