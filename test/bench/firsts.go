package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// fasterFirst is what a start that waits for a preloader is to be, measured by an
// exec of the same instance.
const fasterFirst = 2.0

// first is a start for which something is not ready yet, both ways.
type first struct {
	name   string
	env    map[string]launcherapi.EnvValue
	before func(r *realVLLM, method string) error // nil: nothing
	target float64                                // times faster than by exec

	auto, exec times
}

// firsts times starts of real vLLM that are the first of their kind, beside starts by
// exec under a launcher that keeps no preloader: two have to wait for a preloader to
// load, and two have a model of an architecture that vLLM's cache does not know yet.
func (b *bench) firsts(setup string) ([]*first, error) {
	all := []*first{
		{name: "the first instance after `serve`", target: fasterFirst},
		{name: "the first with another `OMP_NUM_THREADS`", target: fasterFirst, env: map[string]launcherapi.EnvValue{"OMP_NUM_THREADS": {Value: "2"}}},
		{name: "the first of its architecture, with a preloader that is ready", target: fasterThanByHand, before: (*realVLLM).forgetArchitectures},
		{name: "the second of its architecture", target: fasterThanByHand},
	}
	for i := range b.n(3) {
		for _, method := range []string{launcherapi.StartAuto, launcherapi.StartExec} {
			if err := b.firstsBy(setup, method, fmt.Sprintf("firsts-%s-%d", method, i), all); err != nil {
				return nil, err
			}
		}
		for _, f := range all {
			fmt.Fprintf(b.progress, "%s: %s s, by exec %s s\n", f.name, seconds(f.auto[len(f.auto)-1]), seconds(f.exec[len(f.exec)-1]))
		}
	}
	return all, nil
}

// firstsBy times both starts under a new launcher of one start method.
func (b *bench) firstsBy(setup, method, name string, all []*first) (err error) {
	n, err := b.newNode(name, "--start-method", method)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r := &realVLLM{b: b, n: n, model: filepath.Join(setup, "models", "tiny-a")}
	for k, f := range all {
		if f.before != nil {
			if err := f.before(r, method); err != nil {
				return err
			}
		}
		spec := launcherapi.InstanceSpec{Args: r.arguments(), EnvVars: f.env}
		id, began := fmt.Sprintf("first-%d", k), now()
		if _, err := n.client.Create(b.ctx, id, spec); err != nil {
			return err
		}
		awake, err := n.watcher.await(b.ctx, id, "awake")
		if err != nil {
			return err
		}
		made, err := n.client.Delete(b.ctx, id)
		if err != nil {
			return err
		}
		if want := map[string]string{launcherapi.StartAuto: launcherapi.StartFork, launcherapi.StartExec: launcherapi.StartExec}[method]; made.StartedBy != want {
			return fmt.Errorf("%s was started by %s: %s", f.name, made.StartedBy, made.Reason)
		}
		if method == launcherapi.StartAuto {
			f.auto = append(f.auto, awake.since(began))
		} else {
			f.exec = append(f.exec, awake.since(began))
		}
	}
	return nil
}

// forgetArchitectures removes what vLLM keeps about classes of models, and waits for the
// preloader.
func (r *realVLLM) forgetArchitectures(method string) error {
	if method == launcherapi.StartAuto {
		if err := r.awaitPreloader(); err != nil {
			return err
		}
	}
	found, err := filepath.Glob(filepath.Join(r.n.state, "compiled", "*", "*", "modelinfos"))
	if err != nil || len(found) != 1 {
		return errors.Join(err, fmt.Errorf("the launcher's cache has not one folder modelinfos but these: %q", found))
	}
	return os.RemoveAll(found[0])
}

// renderFirsts makes the table of the first starts.
func renderFirsts(all []*first) string {
	var b strings.Builder
	b.WriteString("| start | samples | `auto`: median (fastest – slowest), s | `exec`: median (fastest – slowest), s | times faster | target | met |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---|\n")
	for _, f := range all {
		faster := f.exec.P50().Seconds() / f.auto.P50().Seconds()
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %.1f | ≥ %.0f | %s |\n", f.name, len(f.auto), spread(f.auto), spread(f.exec), faster, f.target, figures.Verdict(faster >= f.target))
	}
	return b.String()
}

func spread(t times) string {
	return fmt.Sprintf("%s (%s – %s)", seconds(t.P50()), seconds(t.At(0)), seconds(t.At(1)))
}
