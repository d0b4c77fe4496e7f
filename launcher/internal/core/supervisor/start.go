package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/crashpoint"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file starts the process of an engine: by fork from a preloader, for which the
// instance may have to wait, or by exec. The wait for an instance that compiles the same
// is in compile.go.

// startMethod decides how an instance is started. If the request insists on fork, a
// preloader has to be ready now. If none is, startMethod starts one for the next request,
// except in a dry run.
func (s *Supervisor) startMethod(c launcher.CreateRequest, eng engine.Engine, plan engine.Plan) (string, error) {
	method := c.Spec.StartMethod
	if !plan.Forks && method == launcherapi.StartFork {
		return "", launcher.Invalidf("body.start_method", "the engine %s cannot be forked; leave out start_method, or ask for auto or exec", eng.Name())
	}
	if method == "" {
		method = s.opts.StartMethod
	}
	if !plan.Forks || method == "" || method == launcherapi.StartExec || s.opts.Forker == nil && method != launcherapi.StartFork {
		return launcherapi.StartExec, nil
	}
	if method == launcherapi.StartAuto {
		if s.opts.Forker.Never() != "" {
			return launcherapi.StartExec, nil
		}
		return launcherapi.StartAuto, nil
	}
	if s.opts.Forker == nil {
		return "", launcher.Invalidf("body.start_method", "this launcher keeps no preloader, since its own start_method is exec; ask for auto or exec")
	}
	if never := s.opts.Forker.Never(); never != "" {
		return "", launcher.Invalidf("body.start_method", "this launcher cannot fork engines: %s; ask for auto or exec", never)
	}
	check := s.opts.Forker.Check
	if c.DryRun {
		check = s.opts.Forker.Look
	}
	if err := check(plan.Env()); err != nil {
		return "", launcher.Unavailablef("cannot fork: %w; try again when a matching preloader is ready, or ask for start_method auto", err)
	}
	return launcherapi.StartFork, nil
}

// launch saves the instance, starts its process and watches it. If the start has to wait,
// launch starts the process in the background. If the instance can be forked now, launch
// notifies the watchers first, because the fork may take a while.
func (s *Supervisor) launch(i *instance, d *Draft) (launcherapi.Instance, error) {
	output, name, err := s.createLog(d.ID)
	if err != nil {
		s.undoCreate(i)
		return launcherapi.Instance{}, launcher.Storagef("%w", err)
	}
	for _, note := range d.plan.Notes {
		_, _ = fmt.Fprintf(output, "hotseat: %s\n", note) // notes are optional; the engine's own writes show a full disk
	}
	forks := d.method != launcherapi.StartExec && s.opts.Forker.Look(d.plan.Env()) == nil
	s.mu.Lock()
	i.facts.LogName = name
	i.record = s.records.Put(d.ID, s.saved(i))
	record := i.record
	s.mu.Unlock()
	if err := record.Wait(); err != nil { // no process starts without a record
		_ = output.Close() // no engine has written to the log
		s.undoCreate(i)
		return launcherapi.Instance{}, launcher.Storagef("cannot record instance %s: %w", d.ID, err)
	}
	s.mu.Lock()
	if i.replaces != nil {
		s.notifyWatchers(i.replaces, launcherapi.EventDeleted)
		i.replaces = nil
	}
	kind := launcherapi.EventCreated
	if forks {
		s.notifyWatchers(i, kind)
		kind = launcherapi.EventUpdated
	}
	s.mu.Unlock()

	crashpoint.At(crashpoint.StartWritten)
	reason := s.forkWaitReason(d)
	if reason == "" {
		reason, _ = s.takeCompileTurn(i)
	}
	if reason != "" {
		return s.launchLater(i, d, output, reason, kind), nil
	}
	defer output.Close() // the child has its own copy
	tree, notForked, err := s.startProcess(i, d, output, false)
	crashpoint.At(crashpoint.StartSpawned)
	s.mu.Lock()
	err = s.launched(i, d, tree, notForked, err, kind)
	if err == nil && s.closing {
		err = s.transition(i, launcher.EventStopAsked, nil)
	}
	view := i.view()
	s.mu.Unlock()
	s.settle()
	return view, err
}

// launched handles the start of the process, or its failure err. kind is the event for the
// watchers. The lock is held.
func (s *Supervisor) launched(i *instance, d *Draft, tree Tree, notForked, err error, kind launcherapi.EventType) error {
	i.noteStart(d.method, notForked)
	s.opts.Observer.Started(i.facts.StartedBy, notForked != nil)
	if err != nil {
		s.publish(i, kind)
		why := err.Error()
		return s.transition(i, launcher.EventStartFailed, func() {
			i.cause, i.reason = string(engine.CauseProgramCannotBeRun), why
		})
	}
	i.tree, i.root = tree, tree.ID()
	s.meter.Follow(d.ID, i.root.PID)
	if i.facts.StartedBy == launcherapi.StartFork { // measured before the process forks: its children begin with this memory too
		i.facts.Inherited = s.opts.Processes.Resident(i.root.PID).Anon
	}
	s.publish(i, kind)
	s.watchExit(i)
	if i.op == nil {
		s.beginOperation(i, &operation{limit: s.opts.Limits.Start})
	}
	op := i.op
	s.spawn(func() { s.awaitStarted(i, op) })
	if i.deleting || i.endWanted {
		return s.transition(i, launcher.EventStopAsked, nil)
	}
	return nil
}

// forkWaitReason returns what the start of a draft has to wait for: a preloader that is
// loading and will be ready sooner than an engine started by exec. Empty: nothing.
func (s *Supervisor) forkWaitReason(d *Draft) string {
	if d.method != launcherapi.StartAuto {
		return ""
	}
	return s.opts.Forker.Awaits(d.plan.Env())
}

// launchLater starts the process of an instance in the background. It first waits until a
// preloader can fork it and no other instance compiles the same; each wait has a limit.
// It closes output at the end. kind is the event that watchers get now.
func (s *Supervisor) launchLater(i *instance, d *Draft, output *os.File, reason string, kind launcherapi.EventType) launcherapi.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.startDeferred, i.reason = true, i.secrets.Hide(reason)
	s.beginOperation(i, &operation{limit: s.opts.Limits.Start})
	op := i.op
	s.publish(i, kind)
	s.spawn(func() {
		defer output.Close() // the child has its own copy
		if s.forkWaitReason(d) != "" {
			s.awaitFork(i, op, d)
		}
		s.awaitCompiler(i, op)
		s.launchWaited(i, d, output)
	})
	if i.deleting {
		if err := s.transition(i, launcher.EventStopAsked, nil); err != nil {
			s.log.Error("cannot stop an instance that waits for its start", "error", err)
		}
	}
	return i.view()
}

// awaitFork waits until a preloader can fork the instance's process. It leaves at least
// half of the time for the start to the engine, and ends early with the operation.
func (s *Supervisor) awaitFork(i *instance, op *operation, d *Draft) {
	began := time.Now()
	ctx, stop := context.WithTimeout(op.ctx, op.limit/2)
	defer stop()
	// Fork returns the reason too.
	_ = s.opts.Forker.Await(ctx, d.plan.Env(), func(reason string) { s.noteWait(i, op, reason) })
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := time.Since(began)
	i.addTiming("preload", waited)
	op.limit -= waited
}

// noteWait publishes what an instance waits for.
func (s *Supervisor) noteWait(i *instance, op *operation, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason = i.secrets.Hide(reason)
	if i.op != op || op.ctx.Err() != nil || i.reason == reason {
		return
	}
	i.reason = reason
	s.publish(i, launcherapi.EventUpdated)
}

// launchWaited starts the process of an instance that has waited, unless the instance was
// stopped meanwhile. If the launcher is ending, it still starts the process, and the next
// launcher adopts it.
func (s *Supervisor) launchWaited(i *instance, d *Draft, output *os.File) {
	s.mu.Lock()
	i.startDeferred = false
	wanted := i.state == launcher.Starting
	s.mu.Unlock()
	if !wanted {
		return
	}
	tree, notForked, err := s.startProcess(i, d, output, false)
	crashpoint.At(crashpoint.StartSpawned)
	s.mu.Lock()
	defer s.mu.Unlock()
	i.reason = ""
	if err := s.launched(i, d, tree, notForked, err, launcherapi.EventUpdated); err != nil {
		s.log.Error("cannot start an instance after its wait", "error", err)
	}
}

// startProcess starts the engine's process. notForked says why a process that was to be
// forked was started by exec instead.
func (s *Supervisor) startProcess(i *instance, d *Draft, output *os.File, wakes bool) (tree Tree, notForked, err error) {
	plan, err := s.withConfig(d.ID, d.plan)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot copy the --config file: %w", err)
	}
	if err := s.makeSaveDir(i, wakes); err != nil {
		return nil, nil, err
	}
	args, env := plan.Argv("127.0.0.1", i.facts.EnginePort), plan.PortEnv(i.facts.EnginePort)
	public := net.JoinHostPort(i.facts.PublicHost, strconv.Itoa(i.facts.PublicPort))
	switch {
	case i.isWorker():
		args, env, public = plan.WorkerArgv(), plan.Env(), ""
	case i.facts.EngineSocket != "":
		args, env = plan.SocketArgv(i.facts.EngineSocket), plan.SocketEnv(i.facts.EngineSocket)
	}
	argv := slices.Concat(s.opts.Programs[i.engine.Name()], args)
	command := process.Command{Name: d.ID, Path: argv[0], Args: argv, Env: env, Output: output, Scratch: plan.Scratch, Socket: i.facts.EngineSocket, Public: public}
	if len(i.facts.Ports) > 0 {
		s.opts.Leases.Yield(d.ID)
	}
	switch {
	case d.method == launcherapi.StartExec:
	case s.ctx.Err() != nil:
		notForked = errors.New("the launcher ended before it forked the instance")
	default:
		if tree, notForked = s.opts.Forker.Fork(command); notForked == nil {
			return tree, nil, nil
		}
	}
	if tree, err = s.opts.Runner.Start(command); err != nil {
		return nil, notForked, fmt.Errorf("cannot start %s: %w", argv[0], err)
	}
	return tree, notForked, nil
}

// noteStart records how the process was started. The lock is held.
func (i *instance) noteStart(method string, notForked error) {
	i.facts.StartedBy = launcherapi.StartExec
	switch {
	case notForked != nil:
		i.reason = i.secrets.Hide("started by exec: " + notForked.Error())
	case method != launcherapi.StartExec:
		i.facts.StartedBy = launcherapi.StartFork
	}
}
