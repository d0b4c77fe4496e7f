package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/figures"
)

// fasterFirst is what a start that waits for a preloader is to be, measured by an
// exec of the same instance.
const fasterFirst = 2.0

// first is a start for which no preloader is ready, both ways.
type first struct {
	name       string
	auto, exec times
}

// firsts times starts of real vLLM that have to wait for a preloader to load,
// beside starts by exec under a launcher that keeps none.
func (b *bench) firsts(setup string) ([]*first, error) {
	serve := &first{name: "the first instance after `serve`"}
	variable := &first{name: "the first with another `OMP_NUM_THREADS`"}
	all := []*first{serve, variable}
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
		spec := launcherapi.InstanceSpec{Args: r.arguments()}
		if k > 0 {
			spec.EnvVars = map[string]launcherapi.EnvValue{"OMP_NUM_THREADS": {Value: "2"}}
		}
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

// renderFirsts makes the table of the starts that wait for a preloader.
func renderFirsts(all []*first) string {
	var b strings.Builder
	b.WriteString("| start | samples | `auto`: median (fastest – slowest), s | `exec`: median (fastest – slowest), s | times faster | target | met |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---|\n")
	for _, f := range all {
		faster := f.exec.P50().Seconds() / f.auto.P50().Seconds()
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %.1f | ≥ %.0f | %s |\n", f.name, len(f.auto), spread(f.auto), spread(f.exec), faster, fasterFirst, figures.Verdict(faster >= fasterFirst))
	}
	return b.String()
}

func spread(t times) string {
	return fmt.Sprintf("%s (%s – %s)", seconds(t.P50()), seconds(t.At(0)), seconds(t.At(1)))
}
