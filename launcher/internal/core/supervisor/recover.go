package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Recover takes over the engines of an earlier launcher.
//
//	the instance                           effect
//	its engine lives                       adopted in its state
//	it was starting, moving or stopping    that goes on
//	its engine has ended                   failed, with the exit code if it is known
//	processes with marks, no record        listed as its processes show it
//
// Recover never ends an engine because it knows too little about it. It returns once
// every instance is listed, and does not wait for processes: it clears leftovers in the
// background. The caller finishes the swaps.
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
		case !state.hasRecord(tree.Name):
			state.Instances = append(state.Instances, s.unrecordedInstance(tree))
		}
	}
	s.findSockets(state.Instances)
	s.endHelpers(ctx, helpers)
	s.replaceUnknownEngines(state.Instances[:known])
	s.probeAll(ctx, state.Instances[known:])
	s.askAll(ctx, state.Instances[:known])
	s.removeConfigs(state)
	s.removeSavedOfOthers(state)
	for _, saved := range state.Instances {
		if !state.isUnderWay(saved.SwapID) {
			saved.SwapID, saved.HoldGate = "", false // the swap is over or its record is lost
		}
		s.recoverOne(saved, found)
	}
	s.takeLeasesAgain()
	s.releaseStaleLeases()
	return nil
}

// replaceUnknownEngines takes the engine of a record for the launcher's first one if the
// launcher does not have the engine that the record names. The record is damaged then, or a
// newer launcher wrote it, and its process may live.
func (s *Supervisor) replaceUnknownEngines(all []SavedInstance) {
	for n := range all {
		saved := &all[n]
		if _, err := s.engine(saved.Engine); err == nil {
			continue
		}
		why := fmt.Sprintf("its record names the engine %q, which this launcher does not have; it is taken for %s", saved.Engine, s.opts.Engines[0].Name())
		s.log.Error("the record of an instance names an unknown engine", "instance", saved.Facts.ID, "engine", saved.Engine)
		saved.Engine, saved.Doubted, saved.Reason = s.opts.Engines[0].Name(), true, join(saved.Reason, why)
	}
}

// isUnderWay reports whether the swap was not over.
func (s *SavedState) isUnderWay(swapID string) bool {
	return slices.Contains(s.UnderWay, swapID)
}

func (s *SavedState) hasRecord(id string) bool {
	return slices.ContainsFunc(s.Instances, func(saved SavedInstance) bool { return saved.Facts.ID == id })
}

// endHelpers ends the helpers of an earlier launcher. Their names are to be used again, so
// it waits for their end, but for at most askLimit. After that it goes on in the
// background.
func (s *Supervisor) endHelpers(ctx context.Context, helpers []process.Found) {
	if len(helpers) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var all sync.WaitGroup
	for _, tree := range helpers {
		s.log.Info("ending a helper process of an earlier launcher", "helper", tree.Name, "pids", tree.PIDs)
		all.Add(1)
		s.spawn(func() {
			defer all.Done()
			if err := retry(s.ctx, func() error { return s.opts.Runner.Clear(s.ctx, tree.Name) }); err != nil {
				s.log.Error("cannot end a helper process of an earlier launcher", "helper", tree.Name, "pids", tree.PIDs, "error", err)
			}
		})
	}
	ended := make(chan struct{})
	s.spawn(func() { all.Wait(); close(ended) })
	select {
	case <-ended:
	case <-ctx.Done():
		s.log.Warn("helper processes of an earlier launcher do not end; continuing without them")
	}
}

// askLimit bounds how long Recover waits for answers of engines, and for the end of
// helpers.
const askLimit = 2 * time.Second

// askAll asks the engines that should live whether they sleep: their records may be stale.
// It does not ask an engine that was falling asleep or waking, unless its record is
// doubted. If an engine does not answer, its record counts.
func (s *Supervisor) askAll(ctx context.Context, all []SavedInstance) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var asked sync.WaitGroup
	for n := range all {
		saved := &all[n]
		eng, err := s.engine(saved.Engine)
		moving := saved.isMoving()
		if err != nil || !saved.canBeAsked() || saved.State == launcher.Sleeping && !isInPlace(eng) { // its process tells
			continue
		}
		asked.Go(func() {
			sleeping, err := isSleeping(ctx, eng, (&instance{facts: saved.Facts}).engineURL())
			switch {
			case err != nil:
				saved.refuses = engine.Refused(err) && saved.Facts.knowsEngine()
			case sleeping && saved.State != launcher.Sleeping:
				s.log.Warn("an engine is asleep, but its record says otherwise", "instance", saved.Facts.ID, "written", saved.State)
				saved.levelOnDisk = max(saved.Level, 1)
				saved.State, saved.Level = launcher.Sleeping, 2 // the wake sequence of level 2 wakes sleepers of both levels
			case !sleeping && (saved.State == launcher.Sleeping || moving):
				s.log.Warn("an engine is awake, but its record says otherwise", "instance", saved.Facts.ID, "written", saved.State)
				saved.State = s.stateOfWoken(saved)
				saved.Doubted = false
			case !sleeping:
				if saved.Doubted && saved.State == launcher.Awake { // it may have slept and woken since
					saved.State = s.stateOfWoken(saved)
				}
				saved.Doubted = false
			}
		})
	}
	asked.Wait()
}

// isMoving reports whether the engine was falling asleep or waking.
func (v *SavedInstance) isMoving() bool {
	return v.State == launcher.FallingAsleep || v.State == launcher.Waking
}

// canBeAsked reports whether askAll asks the engine. A worker cannot be asked anything.
func (v *SavedInstance) canBeAsked() bool {
	return !v.Facts.isWorker() && !v.State.Ended() && v.State != launcher.Stopping && (v.Doubted || !v.isMoving())
}

// stateOfWoken returns the state of an engine that may have woken without a record. If it
// has a fingerprint, its answers are compared before its gate opens, as after every wake.
func (s *Supervisor) stateOfWoken(saved *SavedInstance) launcher.State {
	if s.opts.Limits.Fingerprint > 0 && saved.Fingerprint.exists() {
		return launcher.Waking
	}
	return launcher.Awake
}

func (s *Supervisor) recoverOne(saved SavedInstance, found []process.Found) {
	i, err := s.fromRecord(saved)
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
	switch {
	case !ended && i.restarts() && i.state == launcher.Sleeping: // it was woken, and the record is stale
		i.state = launcher.Waking
	case ended && i.mayBeAsleep(saved.Doubted):
		s.recoverAsleep(i)
		return
	case ended:
		s.recoverGone(i, gone.Exit)
		return
	}
	if portErr := s.reopen(i); portErr != nil {
		s.log.Error("cannot open the ports of an adopted instance again", "instance", saved.Facts.ID, "error", portErr)
		i.portTaken = portErr.Error()
	}
	if saved.refuses && saved.wasAwake() && i.swapID == "" {
		if i.state == launcher.Awake { // it counts as starting until it answers
			i.state, i.since = launcher.Starting, time.Now()
		}
		i.unreachable = s.refusing(i)
		s.log.Warn("an engine refuses connections, but its record says that it was awake", "instance", saved.Facts.ID, "address", i.facts.listensAt())
	}
	s.readSecrets(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addRecovered(i)
	if err != nil {
		late := newLateTree(s.opts.Runner, i.facts.ID, i.root)
		tree = late
		s.adoptLater(i, late, err)
	} else {
		i.root = tree.ID() // complete, if the root hung when it was found
		s.log.Info("adopted an instance", "instance", i.facts.ID, "state", i.state, "pid", i.root.PID)
	}
	i.tree = tree
	s.watchExit(i)
	s.resume(i)
	s.publish(i, launcherapi.EventUpdated)
}

// adopt adopts the root of an instance. If the recorded root is gone but the engine still
// runs, the record was wrong, and adopt takes the engine's process.
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
	other, ok := s.findEngine(i, found[n])
	if !ok || other == root {
		return nil, err
	}
	s.log.Error("the process of an instance is not the recorded one", "instance", i.facts.ID, "recorded", root.PID, "found", other.PID)
	i.root = other
	return s.opts.Runner.Adopt(i.facts.ID, other)
}

// rootOf returns the process to adopt. That is the recorded process or, if the launcher
// died before it could record one, the process with the instance's marks.
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

// fromRecord returns the instance of a record, without its process and ports.
func (s *Supervisor) fromRecord(saved SavedInstance) (*instance, error) {
	eng, err := s.engine(saved.Engine)
	if err != nil {
		return nil, err
	}
	s.opts.Clock.RestorePast(saved.Stamp, &saved.Created, &saved.Since, &saved.LastUsed)
	i := &instance{
		facts: saved.Facts, engine: eng, root: saved.Root, state: saved.State, created: saved.Created, since: saved.Since,
		reason: saved.Reason, cause: saved.Cause, lastLog: saved.LastLog, level: sleepLevel(saved),
		awakeBytes: saved.Awake, residue: saved.Asleep, unmeasured: saved.Unmeasured, confirmed: saved.Confirmed, hostBytes: saved.Host, asleepAt: saved.AsleepAt, asleepBeforeEnd: saved.Slept, lastWoken: saved.LastUsed,
		levelOnDisk: cmp.Or(saved.levelOnDisk, sleepLevel(saved)), hasCompileTurn: true, swapID: saved.SwapID, publishedSwapID: saved.SwapID, gateHeldShut: saved.HoldGate, deleting: saved.Deleting, foundUnrecorded: saved.Found, fingerprint: saved.Fingerprint, staleRecord: saved.Found || saved.Doubted, sleepUnknown: saved.Doubted && saved.State == launcher.Awake, timings: saved.Timings,
		changed: make(chan struct{}), whenReleased: make(chan struct{}),
	}
	if saved.ExitCode != nil {
		i.exit = &process.Exit{Code: saved.ExitCode}
	}
	return i, nil
}

// sleepLevel returns the level whose wake sequence the instance needs. For a doubted
// record that is 2: its sequence wakes sleepers of both levels.
func sleepLevel(saved SavedInstance) int {
	if saved.Doubted && saved.State != launcher.Awake {
		return 2
	}
	return max(saved.Level, 1)
}

// addRecovered adds a recovered instance to the list. The lock is held.
func (s *Supervisor) addRecovered(i *instance) {
	s.instances[i.facts.ID] = i
	s.meter.Follow(i.facts.ID, i.root.PID)
}

// resume continues the start, sleep, wake or stop that was under way. The lock is held.
func (s *Supervisor) resume(i *instance) {
	limits := s.opts.Limits
	s.setGate(i)
	switch i.state {
	case launcher.Starting:
		left := max(limits.Start-time.Since(i.since), settleLimit)
		if i.unreachable != "" {
			left = s.listenLimit()
		}
		s.beginOperation(i, &operation{limit: left, resumed: true})
		op := i.op
		s.spawn(func() { s.awaitStarted(i, op) })
	case launcher.FallingAsleep:
		// The answers in flight ended with the old gate. The earlier launcher may have told the
		// engine to sleep or, if it sleeps without a process, to end.
		s.beginOperation(i, &operation{limit: limits.Sleep, resumed: true, drained: true, ownsProcess: i.restarts()})
		op := i.op
		s.spawn(func() { s.putToSleep(i, op) })
	case launcher.Waking:
		s.beginOperation(i, &operation{limit: limits.Wake, resumed: true, levelOnDisk: i.level == i.levelOnDisk, ownsProcess: i.restarts()})
		op := i.op
		s.spawn(func() { s.wakeUp(i, op) })
	case launcher.Stopping:
		grace := s.stopGrace(i, i.state)
		s.spawn(func() { s.stopTree(i, grace) })
	case launcher.Awake:
		if !i.isConfirmed() {
			s.spawn(func() { s.confirmOnceLoaded(i) })
		}
	case launcher.Sleeping, launcher.Stopped, launcher.Failed:
	}
	if i.unmeasured {
		s.spawn(func() { s.checkOnceAsleepMeasured(i) })
	}
}

// recoverGone lists an instance whose root has ended while no launcher ran. It clears the
// processes that the root has left in the background.
func (s *Supervisor) recoverGone(i *instance, exit process.Exit) {
	tail := s.longTail(i.facts.LogName)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.tree = leftoverTree(s.opts.Runner, i.facts.ID, exit)
	told := make(chan struct{})
	close(told)
	i.exitHandled = told
	s.addRecovered(i)
	s.onGoneWhileAway(i, exit, tail)
}

// onGoneWhileAway handles the exit of a root while no launcher ran. The lock is held.
func (s *Supervisor) onGoneWhileAway(i *instance, exit process.Exit, tail []string) {
	wasStopping := i.state == launcher.Stopping
	err := s.transition(i, launcher.EventExited, func() {
		i.exit = &exit
		if !wasStopping {
			i.explainExit(exit, tail)
			if secrets.Any(i.facts.Spec) {
				i.reason, i.lastLog = exitText(exit), nil // the log may hold a secret, and only the process knew which text that is
			}
			i.reason = join(i.reason, "it ended while the launcher was down")
			if i.root.PID == 0 {
				i.reason = "the launcher ended before it started the engine; create the instance again"
			}
		}
	})
	if err != nil {
		s.log.Error("cannot restore an instance that has ended", "instance", i.facts.ID, "error", err)
		return
	}
	if wasStopping {
		i.reason = "its main process has ended; the launcher ends the processes that it left"
		s.publish(i, launcherapi.EventUpdated)
		s.spawn(func() { s.stopTree(i, 0) })
	}
}

// recoverEnded lists an instance that has ended by its record. If processes of it are
// left, it clears them in the background, and the ledger charges the instance until then.
func (s *Supervisor) recoverEnded(i *instance, found []process.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addRecovered(i)
	if slices.ContainsFunc(found, func(t process.Found) bool { return t.Name == i.facts.ID }) {
		s.publish(i, launcherapi.EventUpdated)
		s.clearLeftovers(i)
		return
	}
	s.release(i)
}
