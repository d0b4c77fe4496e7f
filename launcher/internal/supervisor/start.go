package supervisor

import (
	"fmt"
	"os"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engine"
	"hotseat.dev/hotseat/launcher/internal/process"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file is how an engine's process is made: by exec, or by fork from a
// preloader. Whichever it was, what comes after is the same.

// startMethod says how an instance is to be started. Where fork is insisted on,
// a preloader has to be ready for it now; where none is, one is made ready,
// unless nothing is to be touched.
func (s *Supervisor) startMethod(c Create, plan engine.Plan) (string, error) {
	method := c.Spec.StartMethod
	if method == "" {
		method = s.opts.StartMethod
	}
	if method == "" || method == launcherapi.StartExec || s.opts.Forker == nil && method != launcherapi.StartFork {
		return launcherapi.StartExec, nil
	}
	if method != launcherapi.StartFork {
		return launcherapi.StartAuto, nil
	}
	if s.opts.Forker == nil {
		return "", launcher.Invalidf("body.start_method", "this launcher keeps no preloader (its own start_method is exec): ask for auto or exec")
	}
	if never := s.opts.Forker.Never(); never != "" {
		return "", launcher.Invalidf("body.start_method", "nothing can be forked here: %s: ask for auto or exec", never)
	}
	check := s.opts.Forker.Check
	if c.DryRun {
		check = s.opts.Forker.Look
	}
	if err := check(plan.Env()); err != nil {
		return "", launcher.Unavailablef("cannot fork: %w: try again when a preloader that fits is ready, or ask for start_method auto", err)
	}
	return launcherapi.StartFork, nil
}

// startProcess makes the engine's process. notForked says why it was not
// forked, where that was to be tried: it was started by exec then.
func (s *Supervisor) startProcess(i *instance, d *Draft, output *os.File) (tree Tree, notForked, err error) {
	plan, err := s.withConfig(d.ID, d.plan)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot copy the --config file: %w", err)
	}
	argv := append(append([]string(nil), s.opts.Program...), plan.Argv("127.0.0.1", i.facts.EnginePort)...)
	command := process.Command{Name: d.ID, Path: argv[0], Args: argv, Env: plan.Env(), Output: output, Scratch: plan.Scratch}
	if d.method != launcherapi.StartExec {
		if tree, notForked = s.opts.Forker.Fork(command); notForked == nil {
			return tree, nil, nil
		}
	}
	if tree, err = s.opts.Runner.Start(command); err != nil {
		return nil, notForked, fmt.Errorf("cannot start %s: %w", argv[0], err)
	}
	return tree, notForked, nil
}

// noteStart says how the process was made. The lock is held.
func (i *instance) noteStart(method string, notForked error) {
	i.facts.StartedBy = launcherapi.StartExec
	switch {
	case notForked != nil:
		i.reason = i.secrets.Hide("started by exec: " + notForked.Error())
	case method != launcherapi.StartExec:
		i.facts.StartedBy = launcherapi.StartFork
	}
}
