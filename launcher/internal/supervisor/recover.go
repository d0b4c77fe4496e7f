package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Recover takes over what an earlier life of the launcher left: every engine
// that is alive is adopted in the state it was in, and what was on its way goes
// on its way again; what has ended meanwhile is failed, with its exit code
// where somebody saw it. Trees that carry the launcher's mark and are in no
// journal are found by their marks. It returns once every instance is listed
// again; swaps are the caller's to finish.
func (s *Supervisor) Recover(ctx context.Context, memory Memory) error {
	found, err := s.opts.Runner.Find()
	if err != nil {
		return fmt.Errorf("cannot look for running engines: %w", err)
	}
	for _, tree := range found {
		if !memory.knows(tree.Name) {
			s.recoverUnknown(ctx, &memory, tree)
		}
	}
	s.removeConfigs(memory)
	s.askAll(ctx, memory.Instances)
	for _, saved := range memory.Instances {
		if !memory.runs(saved.SwapID) {
			saved.SwapID, saved.HoldGate = "", false // its swap is over, or lost with the journal
		}
		s.recoverOne(ctx, saved, found)
	}
	return nil
}

// runs says whether a swap had not ended.
func (m *Memory) runs(swapID string) bool {
	return slices.ContainsFunc(m.Swaps, func(s SavedSwap) bool { return s.ID == swapID })
}

func (m *Memory) knows(id string) bool {
	for _, saved := range m.Instances {
		if saved.Facts.ID == id {
			return true
		}
	}
	return false
}

// recoverUnknown adds a tree that no journal knows to what is remembered, from
// its mark. One without a mark cannot be supervised, and is ended.
func (s *Supervisor) recoverUnknown(ctx context.Context, memory *Memory, tree process.Found) {
	saved, err := s.readMark(tree.Name)
	if err == nil {
		s.log.Warn("found an engine that the journal does not know", "instance", tree.Name, "pids", tree.PIDs)
		saved.State = s.probe(ctx, saved)
		memory.Instances = append(memory.Instances, saved)
		return
	}
	if strings.HasPrefix(tree.Name, process.HelperPrefix) {
		s.log.Info("ending a helper of an earlier launcher", "helper", tree.Name, "pids", tree.PIDs)
	} else {
		s.log.Error("found processes of this launcher that nothing is known of: ending them", "instance", tree.Name, "pids", tree.PIDs, "error", err)
	}
	if err := s.opts.Runner.Clear(ctx, tree.Name); err != nil {
		s.log.Error("cannot end processes", "instance", tree.Name, "pids", tree.PIDs, "error", err)
	}
}

// probe asks an engine of which nothing but its mark is known what it does. A
// sleeper is taken to sleep at level 2, whose wake sequence is right for both.
func (s *Supervisor) probe(ctx context.Context, saved SavedInstance) launcher.State {
	eng, err := s.engine(saved.Engine)
	if err != nil {
		return launcher.Starting
	}
	ctx, stop := context.WithTimeout(ctx, settleLimit)
	defer stop()
	base := (&instance{facts: saved.Facts}).base()
	if eng.Ready(ctx, base) != nil {
		return launcher.Starting
	}
	if sleeping, err := eng.IsSleeping(ctx, base); err == nil && sleeping {
		return launcher.Sleeping
	}
	return launcher.Awake
}

// askLimit bounds the question to engines that are taken over what they do.
const askLimit = 2 * time.Second

// askAll asks the engines that should live whether they sleep: what is written
// down of them may be older than what they do, when the journal could not be
// written. One that does not answer is taken to be as written.
func (s *Supervisor) askAll(ctx context.Context, all []SavedInstance) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var asked sync.WaitGroup
	for n := range all {
		saved := &all[n]
		eng, err := s.engine(saved.Engine)
		if err != nil || saved.State.Ended() || saved.State.Moving() && saved.State != launcher.Starting {
			continue
		}
		asked.Go(func() {
			sleeping, err := eng.IsSleeping(ctx, (&instance{facts: saved.Facts}).base())
			switch {
			case err != nil:
			case sleeping && saved.State != launcher.Sleeping:
				s.log.Warn("an engine sleeps that the journal does not know to sleep", "instance", saved.Facts.ID, "journal", saved.State)
				saved.State, saved.Level = launcher.Sleeping, 2 // the wake sequence of level 2 is right for both
			case !sleeping && saved.State == launcher.Sleeping:
				s.log.Warn("an engine is awake that sleeps by the journal", "instance", saved.Facts.ID)
				saved.State = launcher.Awake
			}
		})
	}
	asked.Wait()
}

func (s *Supervisor) recoverOne(ctx context.Context, saved SavedInstance, found []process.Found) {
	i, err := s.remember(saved)
	if err != nil {
		s.log.Error("cannot recover an instance", "instance", saved.Facts.ID, "error", err)
		return
	}
	if saved.State.Ended() {
		s.recoverEnded(ctx, i, found)
		return
	}
	root := rootOf(saved, found)
	tree, err := s.opts.Runner.Adopt(saved.Facts.ID, root)
	if err != nil {
		s.recoverGone(ctx, i, err)
		return
	}
	if err := s.reopen(i); err != nil {
		s.log.Error("cannot open the ports of an adopted instance again", "instance", saved.Facts.ID, "error", err)
		i.reason = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.tree, i.root = tree, tree.ID()
	s.instances[i.facts.ID] = i
	s.watch(i)
	s.resume(i)
	s.publish(i, launcherapi.EventUpdated)
	s.log.Info("adopted an instance", "instance", i.facts.ID, "state", i.state, "pid", i.root.PID)
}

// rootOf is the process to adopt: the one written down, or, when the launcher
// died before it could write, the one that carries the instance's mark.
func rootOf(saved SavedInstance, found []process.Found) process.ID {
	if saved.Root.PID != 0 {
		return saved.Root
	}
	for _, tree := range found {
		if tree.Name == saved.Facts.ID {
			return tree.Root
		}
	}
	return process.ID{}
}

// remember makes the instance of a saved one, without its process and ports.
func (s *Supervisor) remember(saved SavedInstance) (*instance, error) {
	eng, err := s.engine(saved.Engine)
	if err != nil {
		return nil, err
	}
	i := &instance{
		facts: saved.Facts, engine: eng, root: saved.Root, state: saved.State, created: saved.Created, since: saved.Since,
		reason: saved.Reason, cause: saved.Cause, lastLog: saved.LastLog, level: max(saved.Level, 1),
		awakeBytes: saved.Awake, asleepBytes: saved.Asleep, hostBytes: saved.Host, slept: saved.Slept, lastWoken: saved.LastUsed,
		swapID: saved.SwapID, holdGate: saved.HoldGate, deleting: saved.Deleting, timings: saved.Timings,
		holders: map[int]bool{}, changed: make(chan struct{}), over: make(chan struct{}),
	}
	if saved.ExitCode != nil {
		i.exit = &process.Exit{Code: saved.ExitCode}
	}
	return i, nil
}

// reopen makes the ports of an adopted instance again. When its public port is
// taken meanwhile it gets another, and says so.
func (s *Supervisor) reopen(i *instance) error {
	private, err := s.opts.Gates.Claim(i.facts.EnginePort)
	if err != nil {
		s.log.Warn("cannot keep an engine's port for it", "instance", i.facts.ID, "error", err)
	} else {
		i.private = private
	}
	opts := GateOptions{InstanceID: i.facts.ID, Host: i.facts.PublicHost, Port: i.facts.PublicPort, TargetPort: i.facts.EnginePort}
	i.gate, err = s.opts.Gates.Listen(opts)
	if err == nil {
		return nil
	}
	taken := fmt.Errorf("its port %d was taken while the launcher was away: %w", i.facts.PublicPort, err)
	opts.Port = 0
	if i.gate, err = s.opts.Gates.Listen(opts); err != nil {
		i.gate = noGate{}
		return errors.Join(taken, err)
	}
	i.facts.PublicPort = i.gate.Port()
	return taken
}

// resume goes on with what the instance was doing. The lock is held.
func (s *Supervisor) resume(i *instance) {
	limits := s.opts.Limits
	i.gate.Shut(string(i.state))
	switch i.state {
	case launcher.Starting:
		left := max(limits.Start-time.Since(i.since), settleLimit)
		s.beginOperation(i, &operation{limit: left})
		op := i.op
		s.spawn(func() { s.awaitReady(i, op) })
	case launcher.Awake:
		if !i.holdGate {
			i.gate.Open()
		}
	case launcher.FallingAsleep:
		s.beginOperation(i, &operation{limit: limits.Sleep}) // what was in flight went with the old proxy
		op := i.op
		s.spawn(func() { s.putToSleep(i, op) })
	case launcher.Waking:
		s.beginOperation(i, &operation{limit: limits.Wake})
		op := i.op
		s.spawn(func() { s.wakeUp(i, op) })
	case launcher.Stopping:
		i.gate.Fail(failText(i))
		s.spawn(func() { s.stopTree(i, limits.StopGrace) })
	case launcher.Sleeping, launcher.Stopped, launcher.Failed:
	}
}

// recoverGone lists an instance whose process ended while nobody looked.
func (s *Supervisor) recoverGone(ctx context.Context, i *instance, why error) {
	exit := process.Exit{At: time.Now()}
	if gone, ok := errors.AsType[*process.GoneError](why); ok {
		exit = gone.Exit
	} else {
		s.log.Warn("cannot adopt an instance", "instance", i.facts.ID, "error", why)
	}
	if err := s.opts.Runner.Clear(ctx, i.facts.ID); err != nil {
		s.log.Error("cannot clear what an instance left", "instance", i.facts.ID, "error", err)
	}
	tail := s.longTail(i.facts.LogName)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.tree = nil
	s.instances[i.facts.ID] = i
	s.onGoneWhileAway(i, exit, tail)
}

// onGoneWhileAway: the process ended while the launcher was away. The lock is
// held.
func (s *Supervisor) onGoneWhileAway(i *instance, exit process.Exit, tail []string) {
	wasStopping := i.state == launcher.Stopping
	err := s.happen(i, launcher.EventExited, func() {
		i.exit = &exit
		if !wasStopping {
			i.explain(exit, tail)
			i.reason = join(i.reason, "it ended while the launcher was away")
		}
	})
	if err == nil && wasStopping {
		err = s.happen(i, launcher.EventGone, nil)
	}
	if err != nil {
		s.log.Error("cannot list an instance that has ended", "instance", i.facts.ID, "error", err)
	}
}

// recoverEnded lists an instance that had ended before, and clears what may be
// left of it.
func (s *Supervisor) recoverEnded(ctx context.Context, i *instance, found []process.Found) {
	for _, tree := range found {
		if tree.Name != i.facts.ID {
			continue
		}
		if err := s.opts.Runner.Clear(ctx, tree.Name); err != nil {
			s.log.Error("cannot clear what an instance left", "instance", tree.Name, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i.released = true
	close(i.over)
	if i.deleting {
		s.instances[i.facts.ID] = i
		s.forget(i)
		return
	}
	s.instances[i.facts.ID] = i
	s.publish(i, launcherapi.EventUpdated)
}
