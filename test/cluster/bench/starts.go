package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/figures"
)

// starts are the times of hot starts of one kind of Pod.
type starts struct {
	toReady figures.Times // Pod created → Ready
	added   figures.Times // container running → wake call, and wake answered → readiness relayed
	relayed figures.Times // wake answered → Ready
}

// add adds one start. Of the Pod's moments those that the API server notes are:
// created (the request came), running and Ready (the kubelet's word was stored,
// and its write answered), relayed (the controller, whom the requester program
// has answered, asks for the next write). The launcher's events have when the
// wake call went to the engine, and when that answered.
func (s *starts) add(writes []write, moments []launcherapi.Instance, name string, plain bool) error {
	var created, running, ready, relayed, waking, awake time.Time
	first := func(at *time.Time, so bool, when time.Time) {
		if so && at.IsZero() {
			*at = when
		}
	}
	for i := range writes {
		w := &writes[i]
		if w.Object.Name != name {
			continue
		}
		first(&created, w.Verb == "create", w.Received)
		first(&running, w.saysRunning(), w.Answered)
		first(&ready, w.says(corev1.PodReady), w.Answered)
	}
	if created.IsZero() || running.IsZero() || ready.IsZero() {
		return fmt.Errorf("the audit log does not tell all of Pod %s: created %s, running %s, Ready %s", name, created, running, ready)
	}
	s.toReady = append(s.toReady, ready.Sub(created))
	if plain {
		return nil
	}
	for _, m := range moments {
		if m.StateSince.After(running) {
			first(&waking, m.State == "waking", m.StateSince)
			first(&awake, m.State == "awake", m.StateSince)
		}
	}
	for i := range writes {
		w := &writes[i]
		first(&relayed, w.Object.Name == name && w.byController() && w.Received.After(awake), w.Received)
	}
	if waking.IsZero() || awake.Before(waking) || relayed.IsZero() {
		return fmt.Errorf("there was no hot start of Pod %s: running %s, waking %s, awake %s, relayed %s", name, running, waking, awake, relayed)
	}
	s.added = append(s.added, waking.Sub(running)+relayed.Sub(awake))
	s.relayed = append(s.relayed, ready.Sub(awake))
	return nil
}

// rowsOfStarts are the rows of requesters with a gate, with a probe, and of plain
// Pods.
func rowsOfStarts(gate, probe, plain *starts) []figures.Row {
	rows := []figures.Row{
		figures.Timed("one requester on a real node: container running → wake call, plus wake answered → readiness relayed", append(gate.added, probe.added...), nil, addedP50, addedP99),
		within95("wake answered → Pod Ready, by our readiness gate", gate.relayed),
		within95("wake answered → Pod Ready, by a probe that waits", probe.relayed),
	}
	for _, way := range []struct {
		name string
		of   *starts
	}{{"gate", gate}, {"probe", probe}} {
		row := figures.Timed("hot start, Pod created → Ready by "+way.name+"; bare: a plain Pod of the same container", way.of.toReady, plain.toReady, 0, 0)
		row.Target, row.Met = "p50 beside the bare ≤ "+figures.Short(endToEndBy), way.of.toReady.P50()-plain.toReady.P50() <= endToEndBy
		rows = append(rows, row)
	}
	return rows
}

// within95 is the row of a time that has a target at the 95th percentile.
func within95(figure string, ours figures.Times) figures.Row {
	at := ours.At(0.95)
	return figures.Row{
		Figure: figure + ": p50 / p95 (ms)", Samples: len(ours), Ours: figures.MS(ours.P50()) + " / " + figures.MS(at),
		Target: "p95 ≤ " + figures.Short(readyP95), Met: at <= readyP95,
	}
}
