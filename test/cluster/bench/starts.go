package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// starts are the times of hot starts of one kind of Pod.
type starts struct {
	toReady figures.Times // Pod scheduled → Ready
	asked   figures.Times // Pod scheduled → wake call
	relayed figures.Times // container running and wake answered, the later of the two → Ready
}

// add adds one start. Of the Pod's moments those that the API server notes are:
// scheduled, running and Ready (the scheduler's and the kubelet's word was stored, and
// its write answered). The audit log does not name the Pod in the creation of one that
// the API server names. The launcher's events have when
// the wake call went to the engine, and when that answered.
func (s *starts) add(writes []write, moments []launcherapi.Instance, name string, plain bool) error {
	var scheduled, running, ready, waking, awake time.Time
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
		first(&scheduled, w.schedules(), w.Answered)
		first(&running, w.saysRunning(), w.Answered)
		first(&ready, w.says(corev1.PodReady), w.Answered)
	}
	if scheduled.IsZero() || running.IsZero() || ready.IsZero() {
		return fmt.Errorf("the audit log does not tell all of Pod %s: scheduled %s, running %s, Ready %s", name, scheduled, running, ready)
	}
	s.toReady = append(s.toReady, ready.Sub(scheduled))
	if plain {
		return nil
	}
	for _, m := range moments {
		if m.StateSince.After(scheduled) {
			first(&waking, m.State == "waking", m.StateSince)
			first(&awake, m.State == "awake", m.StateSince)
		}
	}
	if waking.IsZero() || awake.Before(waking) || ready.Before(awake) {
		return fmt.Errorf("there was no hot start of Pod %s: scheduled %s, waking %s, awake %s, Ready %s", name, scheduled, waking, awake, ready)
	}
	s.asked = append(s.asked, waking.Sub(scheduled))
	if running.After(awake) {
		awake = running
	}
	s.relayed = append(s.relayed, ready.Sub(awake))
	return nil
}

// traces tells of each Pod, in milliseconds since the scheduler's write: who wrote to it, which
// other writes of the controller and changes of an instance's state fell into the time until it
// was Ready, and when a client was answered, where that is known.
func traces(writes []write, moments []launcherapi.Instance, names []string, answered map[string]time.Time) []byte {
	var text bytes.Buffer
	for _, name := range names {
		at := func(same func(*write) bool) (when time.Time) {
			for i := range writes {
				if when.IsZero() && writes[i].Object.Name == name && same(&writes[i]) {
					when = writes[i].Received
				}
			}
			return when
		}
		scheduled, ready := at((*write).schedules), at(func(w *write) bool { return w.says(corev1.PodReady) })
		var lines []string
		line := func(when time.Time, format string, args ...any) {
			if !when.Before(scheduled) && !when.After(ready.Add(time.Second)) {
				lines = append(lines, fmt.Sprintf("%8.1f  ", 1000*when.Sub(scheduled).Seconds())+fmt.Sprintf(format, args...))
			}
		}
		for i := range writes {
			if w := &writes[i]; w.Object.Name == name || w.byController() {
				line(w.Received, "%s %s%s/%s %s: %d, in %s ms%s", w.Verb, w.ofKind(), w.Object.Name, w.Object.Subresource, w.user(), w.Response.Code, figures.MS(w.Answered.Sub(w.Received)), w.told())
			}
		}
		for _, m := range moments {
			line(m.StateSince, "instance %s is %s", m.InstanceID, m.State)
		}
		if at, known := answered[name]; known {
			line(at, "a client has its answer")
		}
		slices.Sort(lines) // times have one width
		fmt.Fprintf(&text, "%s\n  %s\n", name, strings.Join(lines, "\n  "))
	}
	return text.Bytes()
}

// ofKind names the kind of an object that is no Pod.
func (w *write) ofKind() string {
	if w.Object.Resource == "pods" {
		return ""
	}
	return w.Object.Resource + " "
}

// told says what a kubelet's write says of the Pod.
func (w *write) told() (text string) {
	if w.says(corev1.PodReady) {
		text += ", Ready"
	}
	if w.saysRunning() {
		text += ", running"
	}
	return text
}

// rowsOfStarts are the rows of requesters with a gate, with a probe, and of plain
// Pods.
func rowsOfStarts(gate, probe, plain *starts) []figures.Row {
	rows := []figures.Row{
		asked(append(gate.asked, probe.asked...)),
		within95("container running and wake answered → Pod Ready, by our readiness gate", gate.relayed, readyP95),
		within95("container running and wake answered → Pod Ready, by a probe that waits", probe.relayed, readyP95),
	}
	for _, way := range []struct {
		name string
		of   *starts
		most time.Duration // beside a plain Pod, p50
	}{{"gate", gate, endToEndByGate}, {"probe", probe, endToEndByProbe}} {
		row := figures.Timed("hot start, Pod scheduled → Ready by "+way.name+"; bare: a plain Pod of the same container", way.of.toReady, plain.toReady, 0, 0)
		row.Target, row.Met = "p50 beside the bare ≤ "+figures.Short(way.most), way.of.toReady.P50()-plain.toReady.P50() <= way.most
		rows = append(rows, row)
	}
	return rows
}

// asked is the row of the time until the swap is asked for.
func asked(took figures.Times) figures.Row {
	row := figures.Timed("one requester on a real node: Pod scheduled → wake call", took, nil, 0, 0)
	row.Target, row.Met = "p50 ≤ "+figures.Short(askedP50), took.P50() <= askedP50
	return row
}

// within95 is the row of a time that has a target at the 95th percentile; 0: none.
func within95(figure string, ours figures.Times, most time.Duration) figures.Row {
	at := ours.At(0.95)
	row := figures.Row{Figure: figure + ": p50 / p95 (ms)", Samples: len(ours), Ours: figures.MS(ours.P50()) + " / " + figures.MS(at), Met: true}
	if most > 0 {
		row.Target, row.Met = "p95 ≤ "+figures.Short(most), at <= most
	}
	return row
}
