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

// This file asks running engines about themselves. It always asks for their secrets,
// which are in no record. It asks for everything if there is no record.

// unwrittenReason is the beginning of the reason of an instance without a record.
const unwrittenReason = "the launcher found it running when it started, without a record: "

// probeAll asks the engines without a record for their state. An engine that does not
// answer counts as starting, until it answers.
func (s *Supervisor) probeAll(ctx context.Context, all []SavedInstance) {
	ctx, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	var asked sync.WaitGroup
	for n := range all {
		if saved := &all[n]; saved.Facts.knowsEngine() {
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
	base := (&instance{facts: saved.Facts}).engineURL()
	if eng.Ready(ctx, base) != nil {
		return launcher.Starting
	}
	switch sleeping, err := isSleeping(ctx, eng, base); {
	case err != nil:
		return launcher.Starting
	case sleeping:
		return launcher.Sleeping
	}
	return launcher.Awake
}

// isSleeping asks an engine whether it sleeps. The process of an engine that is ended to sleep
// never does.
func isSleeping(ctx context.Context, eng engine.Engine, base string) (bool, error) {
	if inPlace, ok := eng.(engine.InPlace); ok {
		return inPlace.IsSleeping(ctx, base)
	}
	return false, eng.Ready(ctx, base)
}

// isSleeping asks an engine whether it sleeps. An engine without that endpoint cannot
// sleep.
func (i *instance) isSleeping(ctx context.Context) (bool, error) {
	sleeping, err := isSleeping(ctx, i.engine, i.engineURL())
	if status, ok := errors.AsType[*engine.StatusError](err); ok && status.Status == http.StatusNotFound {
		return false, nil
	}
	return sleeping, err
}

// unrecordedInstance describes an instance without a record from its processes. If these
// cannot be read, it says only what is certain: that the instance runs.
func (s *Supervisor) unrecordedInstance(tree process.Found) SavedInstance {
	s.log.Error("found an engine without a record", "instance", tree.Name, "pids", tree.PIDs)
	now := time.Now()
	saved := SavedInstance{
		Facts:  facts{ID: tree.Name, Mark: s.opts.Mark, LogName: s.logOf(tree)},
		Engine: s.opts.Engines[0].Name(), State: launcher.Awake, Root: tree.Root, Created: now, Since: now, LastUsed: now, Doubted: true, Found: true,
	}
	roots := s.sessionLeaders(tree)
	if len(roots) == 0 {
		saved.Reason = unwrittenReason + "its main process has ended"
		return saved
	}
	saved.Root = roots[0]
	var unread error
	for _, root := range roots {
		for _, eng := range s.opts.Engines {
			running, err := s.readEngine(eng, root.PID)
			if err != nil {
				unread = errors.Join(unread, err)
				continue
			}
			saved.Root, saved.State, saved.Engine = root, launcher.Starting, eng.Name() // until the engine is asked
			saved.Reason = unwrittenReason + "its facts are read from its process"
			s.fillFromProcess(&saved.Facts, running)
			if !saved.Facts.isWorker() && !s.fillPublicAddress(&saved.Facts, root.PID) {
				saved.Reason += ", and it has a new port"
			}
			return saved
		}
	}
	saved.Facts.Spec.GPUUUIDs = s.gpusHeldBy(tree)
	saved.Reason = unwrittenReason + fmt.Sprintf("the launcher cannot reach it; it runs until you delete it (%v)", unread)
	return saved
}

// sessionLeaders returns the processes of a tree that may be the root of an engine: those
// that lead a session. A process that the root has forked leads none.
func (s *Supervisor) sessionLeaders(tree process.Found) []process.ID {
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

// readEngine reads from a process which model it serves, and how.
func (s *Supervisor) readEngine(eng engine.Engine, pid int) (engine.Running, error) {
	env, err := s.opts.Processes.Environ(pid)
	if err != nil {
		return engine.Running{}, err
	}
	return eng.Running(s.opts.Processes.Arguments(pid), env)
}

// findEngine finds the engine of an instance if the recorded root is gone: the record may
// be wrong.
func (s *Supervisor) findEngine(i *instance, tree process.Found) (process.ID, bool) {
	for _, root := range s.sessionLeaders(tree) {
		running, err := s.readEngine(i.engine, root.PID)
		if err == nil && running.Port == i.facts.EnginePort && (running.Socket == "") == (i.facts.EngineSocket == "") {
			return root, true
		}
	}
	return process.ID{}, false
}

// fillFromProcess fills in the facts from what a process shows.
func (s *Supervisor) fillFromProcess(f *facts, running engine.Running) {
	var hidden secrets.Set
	devices := s.opts.GPUs.AllDevices()
	f.Model, f.ServedNames, f.Expected = running.Model, running.ServedNames, map[string]uint64{}
	f.EnginePort, f.EngineSocket, f.KeepAlive = running.Port, running.Socket, running.KeepAlive
	f.Spec = hidden.Redact(launcherapi.InstanceSpec{Args: running.Args, GPUUUIDs: []string{}})
	if r := running.Rank; r != nil {
		f.Spec.Rank = &launcherapi.Rank{Group: unknownGroup, Index: r.Index, Size: r.Size, Entry: r.Entry()}
	}
	for _, name := range running.Devices {
		n := slices.IndexFunc(devices, func(d gpu.Device) bool { return d.UUID == name || strconv.Itoa(d.Index) == name })
		if n < 0 {
			s.log.Warn("an engine uses an unknown GPU", "instance", f.ID, "gpu", name)
			continue
		}
		f.Spec.GPUUUIDs = append(f.Spec.GPUUUIDs, devices[n].UUID)
		f.Expected[devices[n].UUID] = running.DeviceMemory.Of(devices[n].MemoryTotalBytes)
	}
}

// fillPublicAddress fills in the public address that a process was started with, and reports
// whether it has one.
func (s *Supervisor) fillPublicAddress(f *facts, pid int) bool {
	env, err := s.opts.Processes.Environ(pid)
	if err != nil {
		return false
	}
	host, port, ok := process.PublicAddress(env, f.Mark, f.ID)
	if ok {
		f.PublicHost, f.PublicPort = host, port
	}
	return ok
}

// gpusHeldBy returns the GPUs whose memory the processes of a tree hold.
func (s *Supervisor) gpusHeldBy(tree process.Found) []string {
	held := []string{}
	memory := s.meter.Read(s.everyGPU())
	for _, id := range s.everyGPU() {
		if slices.ContainsFunc(memory.GPUs[id].Processes, func(p gpu.Process) bool { return slices.Contains(tree.PIDs, p.PID) }) {
			held = append(held, id)
		}
	}
	return held
}

// logOf returns the name of the log that the processes of a tree write to.
func (s *Supervisor) logOf(tree process.Found) string {
	for _, pid := range tree.PIDs {
		if path, err := s.opts.Processes.Output(pid); err == nil && strings.HasSuffix(path, ".log") {
			return filepath.Base(path)
		}
	}
	return ""
}

// readSecrets reads the instance's API key and its other secrets from its process, since
// no record has them. The lock is held, or no other goroutine has the instance yet.
func (s *Supervisor) readSecrets(i *instance) {
	env, err := s.opts.Processes.Environ(i.root.PID)
	var running engine.Running
	if err == nil {
		running, err = i.engine.Running(s.opts.Processes.Arguments(i.root.PID), env)
	}
	i.keyForgotten = err != nil || running.ConfigGone
	if err != nil {
		s.log.Warn("cannot read the API key of an adopted instance from its process", "instance", i.facts.ID, "error", err)
		return
	}
	i.apiKey = running.APIKey
	i.secrets.FindInProcess(i.facts.Spec, slices.Concat(running.Args, running.ConfigWords), env)
}
