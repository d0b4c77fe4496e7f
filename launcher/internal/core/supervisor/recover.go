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
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Recover takes over the engines of an earlier life of the launcher. An engine that
// is alive is adopted in the state it was in; a start, sleep, wake or stop that was
// under way goes on. An instance whose engine has ended meanwhile is failed, with
// the exit code where somebody saw it. A process tree that carries the launcher's
// mark and has no record is shown as its processes tell. No engine is ended for
// want of knowledge about it. Recover returns once every instance is listed again,
// and waits for no process: leftovers are cleared in the background. Swaps are the
// caller's to finish.
func (s *Supervisor) Recover(ctx context.Context, state SavedState) error {
	found, err := s.opts.Runner.Find()
	if err != nil {
		return fmt.Errorf("cannot look for running engines: %w", err)
	}
	known := len(state.Instances)
	var helpers []process.Found
	for _, tree := range found {
		switch {
		case strings.HasPrefix(tree.Name, process.HelperPrefix):
			helpers = append(helpers, tree)
		case !state.knows(tree.Name):
			state.Instances = append(state.Instances, s.foundling(tree))
		}
	}
	s.endHelpers(ctx, helpers)
	s.probeAll(ctx, state.Instances[known:])
	s.askAll(ctx, state.Instances[:known])
	s.removeConfigs(state)
	for _, saved := range state.Instances {
		if !state.runs(saved.SwapID) {
			saved.SwapID, saved.HoldGate = "", false // the swap is over, or its record is lost
		}
		s.recoverOne(saved, found)
	}
	s.dropLeases()
	return nil
}

// runs says whether a swap had not ended.
func (s *SavedState) runs(swapID string) bool {
	return slices.Contains(s.UnderWay, swapID)
}

func (s *SavedState) knows(id string) bool {
	return slices.ContainsFunc(s.Instances, func(saved SavedInstance) bool { return saved.Facts.ID == id })
}

// endHelpers ends the helpers of an earlier launcher. It waits for at most
// askLimit, since their names are to be used again; a helper that has not ended by
// then is ended in the background.
func (s *Supervisor) endHelpers(ctx context.Context, helpers []process.Found) {
	if len(helpers) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var all sync.WaitGroup
	for _, tree := range helpers {
		s.log.Info("ending a helper of an earlier launcher", "helper", tree.Name, "pids", tree.PIDs)
		all.Add(1)
		s.spawn(func() {
			defer all.Done()
			if err := again(s.ctx, func() error { return s.opts.Runner.Clear(s.ctx, tree.Name) }); err != nil {
				s.log.Error("cannot end a helper of an earlier launcher", "helper", tree.Name, "pids", tree.PIDs, "error", err)
			}
		})
	}
	ended := make(chan struct{})
	s.spawn(func() { all.Wait(); close(ended) })
	select {
	case <-ended:
	case <-ctx.Done():
		s.log.Warn("helpers of an earlier launcher do not end: going on without waiting for them")
	}
}

// askLimit bounds the question to adopted engines whether they sleep, and the wait
// for the end of helpers.
const askLimit = 2 * time.Second

// askAll asks the engines that should live whether they sleep: their records may be
// older than what they do. A sleep or wake that was under way goes on without the
// question, unless the record is doubted. An engine that does not answer is taken
// to be in the state of its record.
func (s *Supervisor) askAll(ctx context.Context, all []SavedInstance) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var asked sync.WaitGroup
	for n := range all {
		saved := &all[n]
		eng, err := s.engine(saved.Engine)
		onItsWay := saved.State == launcher.FallingAsleep || saved.State == launcher.Waking
		if err != nil || saved.State.Ended() || saved.State == launcher.Stopping || onItsWay && !saved.Doubted {
			continue
		}
		asked.Go(func() {
			sleeping, err := eng.IsSleeping(ctx, (&instance{facts: saved.Facts}).base())
			switch {
			case err != nil:
			case sleeping && saved.State != launcher.Sleeping:
				s.log.Warn("an engine sleeps that was not written down to sleep", "instance", saved.Facts.ID, "written", saved.State)
				saved.State, saved.Level = launcher.Sleeping, 2 // the wake sequence of level 2 wakes sleepers of both levels
			case !sleeping && (saved.State == launcher.Sleeping || onItsWay):
				s.log.Warn("an engine is awake that was not written down to be awake", "instance", saved.Facts.ID, "written", saved.State)
				saved.State, saved.Doubted = launcher.Awake, false
			case !sleeping:
				saved.Doubted = false
			}
		})
	}
	asked.Wait()
}

func (s *Supervisor) recoverOne(saved SavedInstance, found []process.Found) {
	i, err := s.remember(saved)
	if err != nil {
		s.log.Error("cannot recover an instance", "instance", saved.Facts.ID, "error", err)
		return
	}
	if saved.State.Ended() {
		s.recoverEnded(i, found)
		return
	}
	tree, err := s.adopt(i, rootOf(saved, found), found)
	gone, ended := errors.AsType[*process.GoneError](err)
	if ended {
		s.recoverGone(i, gone.Exit)
		return
	}
	if portErr := s.reopen(i); portErr != nil {
		s.log.Error("cannot open the ports of an adopted instance again", "instance", saved.Facts.ID, "error", portErr)
		i.reason = join(i.reason, portErr.Error())
	}
	s.readSecrets(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list(i)
	if err != nil {
		late := newLateTree(s.opts.Runner, i.facts.ID, i.root)
		tree = late
		s.adoptLater(i, late, err)
	} else {
		s.log.Info("adopted an instance", "instance", i.facts.ID, "state", i.state, "pid", i.root.PID)
	}
	i.tree = tree
	s.watch(i)
	s.resume(i)
	s.publish(i, launcherapi.EventUpdated)
}

// adopt takes over the root of an instance. Where the root of the record is gone
// and the engine is still there, the record was wrong, and the engine's process is
// adopted.
func (s *Supervisor) adopt(i *instance, root process.ID, found []process.Found) (Tree, error) {
	i.root = root
	tree, err := s.opts.Runner.Adopt(i.facts.ID, root)
	if _, gone := errors.AsType[*process.GoneError](err); !gone {
		return tree, err
	}
	n := slices.IndexFunc(found, func(t process.Found) bool { return t.Name == i.facts.ID })
	if n < 0 {
		return nil, err
	}
	other, ok := s.stillThere(i.engine, i.facts.EnginePort, found[n])
	if !ok || other == root {
		return nil, err
	}
	s.log.Error("the process of an instance is another one than was written down", "instance", i.facts.ID, "written", root.PID, "found", other.PID)
	i.root = other
	return s.opts.Runner.Adopt(i.facts.ID, other)
}

// rootOf is the process to adopt: that of the record, or, when the launcher died
// before it could write that process down, the one that carries the instance's
// mark.
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

// remember makes an instance from its record, without its process and ports.
func (s *Supervisor) remember(saved SavedInstance) (*instance, error) {
	eng, err := s.engine(saved.Engine)
	if err != nil {
		return nil, err
	}
	i := &instance{
		facts: saved.Facts, engine: eng, root: saved.Root, state: saved.State, created: saved.Created, since: saved.Since,
		reason: saved.Reason, cause: saved.Cause, lastLog: saved.LastLog, level: sleepLevel(saved),
		awakeBytes: saved.Awake, residue: saved.Asleep, hostBytes: saved.Host, asleepAt: saved.AsleepAt, slept: saved.Slept, lastWoken: saved.LastUsed,
		compiling: true, swapID: saved.SwapID, shownSwap: saved.SwapID, holdGate: saved.HoldGate, deleting: saved.Deleting, found: saved.Found, unheard: saved.Doubted && saved.State == launcher.Awake, timings: saved.Timings,
		changed: make(chan struct{}), over: make(chan struct{}),
	}
	if saved.ExitCode != nil {
		i.exit = &process.Exit{Code: saved.ExitCode}
	}
	return i, nil
}

// sleepLevel is the level by whose sequence an instance is to be woken. For a
// doubted record it is 2: that sequence wakes sleepers of both levels.
func sleepLevel(saved SavedInstance) int {
	if saved.Doubted && saved.State != launcher.Awake {
		return 2
	}
	return max(saved.Level, 1)
}

// reopen makes the ports of an adopted instance again. An instance whose public
// port was taken meanwhile gets another, and its reason says so.
func (s *Supervisor) reopen(i *instance) error {
	if i.facts.EnginePort == 0 {
		return nil // nobody knows where the engine listens
	}
	private, err := s.opts.Gates.Claim(i.facts.EnginePort)
	if err != nil {
		s.log.Warn("cannot reserve the port of an adopted engine", "instance", i.facts.ID, "error", err)
	} else {
		i.private = private
	}
	opts := GateOptions{InstanceID: i.facts.ID, Supervisor: s, Host: i.facts.PublicHost, Port: i.facts.PublicPort, TargetPort: i.facts.EnginePort}
	gate, taken := s.opts.Gates.Listen(opts)
	if taken != nil {
		taken = fmt.Errorf("its port %d was taken while the launcher was away: %w", i.facts.PublicPort, taken)
		opts.Port = 0
		if gate, err = s.opts.Gates.Listen(opts); err != nil {
			return errors.Join(taken, err)
		}
	}
	i.gate, i.facts.PublicPort = gate, gate.Port()
	return taken
}

// list adds a recovered instance to the list. The lock is held.
func (s *Supervisor) list(i *instance) {
	s.instances[i.facts.ID] = i
	s.meter.Follow(i.facts.ID, i.root.PID)
}

// resume goes on with the start, sleep, wake or stop that was under way. The lock
// is held.
func (s *Supervisor) resume(i *instance) {
	limits := s.opts.Limits
	s.setGate(i)
	switch i.state {
	case launcher.Starting:
		left := max(limits.Start-time.Since(i.since), settleLimit)
		s.beginOperation(i, &operation{limit: left, resumed: true})
		op := i.op
		s.spawn(func() { s.awaitReady(i, op) })
	case launcher.FallingAsleep:
		s.beginOperation(i, &operation{limit: limits.Sleep, resumed: true}) // the answers in flight went with the old proxy
		op := i.op
		s.spawn(func() { s.putToSleep(i, op) })
	case launcher.Waking:
		s.beginOperation(i, &operation{limit: limits.Wake, resumed: true})
		op := i.op
		s.spawn(func() { s.wakeUp(i, op) })
	case launcher.Stopping:
		s.spawn(func() { s.stopTree(i, limits.StopGrace) })
	case launcher.Awake, launcher.Sleeping, launcher.Stopped, launcher.Failed:
	}
}

// recoverGone lists an instance whose root ended while the launcher was away. The
// processes that the root left are cleared in the background.
func (s *Supervisor) recoverGone(i *instance, exit process.Exit) {
	tail := s.longTail(i.facts.LogName)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.tree = remains(s.opts.Runner, i.facts.ID, exit)
	told := make(chan struct{})
	close(told)
	i.exitTold = told
	s.list(i)
	s.onGoneWhileAway(i, exit, tail)
}

// onGoneWhileAway: the root ended while the launcher was away. The lock is held.
func (s *Supervisor) onGoneWhileAway(i *instance, exit process.Exit, tail []string) {
	wasStopping := i.state == launcher.Stopping
	err := s.happen(i, launcher.EventExited, func() {
		i.exit = &exit
		if !wasStopping {
			i.explain(exit, tail)
			if secrets.Any(i.facts.Spec) {
				i.reason, i.lastLog = exitText(exit), nil // the log may tell a secret, and which text is one only the process told
			}
			i.reason = join(i.reason, "it ended while the launcher was away")
			if i.root.PID == 0 {
				i.reason = "the launcher ended before the engine was started: create the instance again"
			}
		}
	})
	if err != nil {
		s.log.Error("cannot list an instance that has ended", "instance", i.facts.ID, "error", err)
		return
	}
	if wasStopping {
		i.reason = "its first process has ended; the processes that it left are being ended"
		s.publish(i, launcherapi.EventUpdated)
		s.spawn(func() { s.stopTree(i, 0) })
	}
}

// recoverEnded lists an instance whose record says that it had ended. Processes
// that are left of it are cleared in the background, and their memory is charged
// until then.
func (s *Supervisor) recoverEnded(i *instance, found []process.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list(i)
	if slices.ContainsFunc(found, func(t process.Found) bool { return t.Name == i.facts.ID }) {
		s.publish(i, launcherapi.EventUpdated)
		s.clearLeft(i)
		return
	}
	s.release(i)
}
