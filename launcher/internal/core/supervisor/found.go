package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/core/secrets"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file asks living engines about themselves: always for their secrets, which
// are in no record; and for everything where there is no record.

// unwrittenReason begins the reason of an instance without a record.
const unwrittenReason = "found running at the start of the launcher, nothing was written of it: "

// probeAll asks the engines without a record for their state. An engine that does
// not answer is taken to be starting, and asked again when it answers.
func (s *Supervisor) probeAll(ctx context.Context, all []SavedInstance) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var asked sync.WaitGroup
	for n := range all {
		if saved := &all[n]; saved.Facts.EnginePort != 0 {
			asked.Go(func() { saved.State = s.probe(ctx, *saved) })
		}
	}
	asked.Wait()
}

// probe asks an engine without a record for its state.
func (s *Supervisor) probe(ctx context.Context, saved SavedInstance) launcher.State {
	eng, err := s.engine(saved.Engine)
	if err != nil {
		return launcher.Starting
	}
	base := (&instance{facts: saved.Facts}).base()
	if eng.Ready(ctx, base) != nil {
		return launcher.Starting
	}
	switch sleeping, err := eng.IsSleeping(ctx, base); {
	case err != nil:
		return launcher.Starting
	case sleeping:
		return launcher.Sleeping
	}
	return launcher.Awake
}

// asleep asks an engine whether it sleeps. One that knows no such question cannot.
func (i *instance) asleep(ctx context.Context) (bool, error) {
	sleeping, err := i.engine.IsSleeping(ctx, i.base())
	if status, ok := errors.AsType[*engine.StatusError](err); ok && status.Status == http.StatusNotFound {
		return false, nil
	}
	return sleeping, err
}

// foundling is an instance without a record, as its processes show it. Where these
// cannot be read, only what is certain is shown: that the instance runs.
func (s *Supervisor) foundling(tree process.Found) SavedInstance {
	s.log.Error("found an engine of which nothing was written", "instance", tree.Name, "pids", tree.PIDs)
	eng, now := s.opts.Engines[0], time.Now()
	saved := SavedInstance{
		Facts:  facts{ID: tree.Name, LogName: s.logOf(tree)},
		Engine: eng.Name(), State: launcher.Awake, Root: tree.Root, Created: now, Since: now, LastUsed: now, Doubted: true, Found: true,
	}
	roots := s.leaders(tree)
	if len(roots) == 0 {
		saved.Reason = unwrittenReason + "its first process has ended"
		return saved
	}
	saved.Root = roots[0]
	var unread error
	for _, root := range roots {
		running, err := s.runningIn(eng, root.PID)
		if err == nil {
			saved.Root, saved.State = root, launcher.Starting // until the engine is asked
			saved.Reason = unwrittenReason + "what is shown was read from its process, and its port is another one"
			s.fill(&saved.Facts, running)
			return saved
		}
		unread = errors.Join(unread, err)
	}
	saved.Facts.Spec.GPUUUIDs = s.heldBy(tree)
	saved.Reason = unwrittenReason + fmt.Sprintf("it cannot be reached, and runs until it is deleted (%v)", unread)
	return saved
}

// leaders are the processes of a tree that may be the root of an engine: those that
// lead a session, as no process does that the root has forked.
func (s *Supervisor) leaders(tree process.Found) []process.ID {
	var found []process.ID
	if tree.Root.PID != 0 {
		found = append(found, tree.Root)
	}
	boot, err := procfs.BootID()
	if err != nil {
		return found
	}
	for _, pid := range tree.PIDs {
		if stat, err := s.opts.Processes.Read(pid); err == nil && stat.Session == pid && pid != tree.Root.PID {
			found = append(found, process.ID{PID: pid, StartTime: stat.StartTime, BootID: boot})
		}
	}
	return found
}

// runningIn reads from a process which model it serves, and how.
func (s *Supervisor) runningIn(eng engine.Engine, pid int) (engine.Running, error) {
	env, err := s.opts.Processes.Environ(pid)
	if err != nil {
		return engine.Running{}, err
	}
	return eng.Running(s.opts.Processes.Arguments(pid), env)
}

// stillThere finds the engine of an instance when the root of its record is gone:
// the record may be wrong.
func (s *Supervisor) stillThere(eng engine.Engine, port int, tree process.Found) (process.ID, bool) {
	for _, root := range s.leaders(tree) {
		running, err := s.runningIn(eng, root.PID)
		if err == nil && running.Port == port {
			return root, true
		}
	}
	return process.ID{}, false
}

// fill takes over into the facts what a process tells.
func (s *Supervisor) fill(f *facts, running engine.Running) {
	var hidden secrets.Set
	devices := s.opts.GPUs.Devices()
	f.Model, f.ServedNames, f.EnginePort, f.Expected = running.Model, running.ServedNames, running.Port, map[string]uint64{}
	f.Spec = hidden.Redact(launcherapi.InstanceSpec{Args: running.Args, GPUUUIDs: []string{}})
	for _, name := range running.Devices {
		n := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == name || strconv.Itoa(d.Index) == name })
		if n < 0 {
			s.log.Warn("an engine uses a GPU that is not known", "instance", f.ID, "gpu", name)
			continue
		}
		f.Spec.GPUUUIDs = append(f.Spec.GPUUUIDs, devices[n].UUID)
		f.Expected[devices[n].UUID] = uint64(running.GPUMemoryUtilization * float64(devices[n].MemoryTotalBytes))
	}
}

// heldBy lists the GPUs whose memory the processes of a tree hold.
func (s *Supervisor) heldBy(tree process.Found) []string {
	held := []string{}
	memory := s.meter.Read(s.everyGPU())
	for _, id := range s.everyGPU() {
		if slices.ContainsFunc(memory.GPUs[id].Processes, func(p gpu.Process) bool { return slices.Contains(tree.PIDs, p.PID) }) {
			held = append(held, id)
		}
	}
	return held
}

// logOf is the name of the log that the processes of a tree write to.
func (s *Supervisor) logOf(tree process.Found) string {
	for _, pid := range tree.PIDs {
		if path, err := s.opts.Processes.Output(pid); err == nil && strings.HasSuffix(path, ".log") {
			return filepath.Base(path)
		}
	}
	return ""
}

// readSecrets takes the instance's API key and its other secrets, which are in no
// record, from its process. The lock is held, or nobody else knows the instance
// yet.
func (s *Supervisor) readSecrets(i *instance) {
	env, err := s.opts.Processes.Environ(i.root.PID)
	var running engine.Running
	if err == nil {
		running, err = i.engine.Running(s.opts.Processes.Arguments(i.root.PID), env)
	}
	i.keyForgotten = err != nil || running.ConfigGone
	if err != nil {
		s.log.Warn("cannot read the key of an adopted instance from its process", "instance", i.facts.ID, "error", err)
		return
	}
	i.apiKey = running.APIKey
	i.secrets.FindInProcess(i.facts.Spec, slices.Concat(running.Args, running.ConfigWords), env)
}
