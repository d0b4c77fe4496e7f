package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// model returns a Model in mode Requests whose demand has been so high for long.
func model(demand int, entries ...Entry) *Model {
	return &Model{Now: now, Mode: Requests, Demand: Demand{Now: demand, Mean: float64(demand), Peak: demand, Known: true}, Entries: entries}
}

// held has all of the demand have come just now, and be held.
func held(m *Model) *Model {
	m.Demand.Held, m.Demand.Mean = m.Demand.Now, 0
	return m
}

// peaked has the demand have been so high within the delay.
func peaked(peak int, m *Model) *Model {
	m.Demand.Peak = peak
	return m
}

func unknown(m *Model) *Model {
	m.Demand.Known = false
	return m
}

func totals(least, most int, m *Model) *Model {
	m.TotalMin, m.TotalMax = least, most
	return m
}

func external(replicas int, entries ...Entry) *Model {
	return &Model{Now: now, Mode: External, Replicas: replicas, Entries: entries}
}

func off(m *Model) *Model {
	m.Mode = Off
	return m
}

// entry returns one that carries 100 a replica.
func entry(name string, so ...func(*Entry)) Entry {
	e := Entry{Name: name, Hash: "h", Target: 100, Unschedulable: 30 * time.Second, ScaleUpTimeout: 10 * time.Minute, Record: Record{Hash: "h"}}
	for _, do := range so {
		do(&e)
	}
	return e
}

// standby returns an entry that carries nothing, and has a minimum of 1.
func standby(name string, so ...func(*Entry)) Entry {
	return entry(name, append([]func(*Entry){func(e *Entry) { e.Target, e.Min = 0, 1 }}, so...)...)
}

func (e *Entry) add(p Pod) {
	p.Name = fmt.Sprintf("%s%d", e.Name, len(e.Pods)+1)
	e.Pods = append(e.Pods, p)
}

func (e *Entry) ask(n int) {
	e.Asked.Replicas += n
	e.Replicas += n
}

// serves gives it Pods that serve, each of which became ready a minute after the next one.
func serves(n int) func(*Entry) {
	return func(e *Entry) {
		for range n {
			e.add(Pod{Ready: true, Serving: true, Admitted: true, Since: ago(time.Hour - time.Duration(len(e.Pods))*time.Minute)})
		}
		e.ask(n)
	}
}

// starts gives it Pods that are not ready, and so old.
func starts(n int, age time.Duration, so ...func(*Pod)) func(*Entry) {
	return func(e *Entry) {
		for range n {
			p := Pod{Since: ago(age)}
			for _, do := range so {
				do(&p)
			}
			e.add(p)
		}
		e.ask(n)
	}
}

// became gives it a Pod that became ready so long ago and does not serve.
func became(age time.Duration, so ...func(*Pod)) func(*Entry) {
	return starts(1, age, append([]func(*Pod){func(p *Pod) { p.Ready = true }}, so...)...)
}

// awaits has its Deployment have been asked for Pods that are not there.
func awaits(n int) func(*Entry) { return func(e *Entry) { e.ask(n) } }

// late gives it a Pod that it was not asked for, or is not any more.
func late(p Pod) func(*Entry) { return func(e *Entry) { e.add(p) } }

func bounds(least, most int) func(*Entry) { return func(e *Entry) { e.Min, e.Max = least, most } }

func target(n int) func(*Entry) { return func(e *Entry) { e.Target = n } }

func in(group string, goal int) func(*Entry) {
	return func(e *Entry) { e.Group, e.Asked.Goal = group, goal }
}

func asleep(n int) func(*Entry) { return func(e *Entry) { e.AsleepOnFree = n } }

func invalid(e *Entry) { e.Invalid = "no ResourceProfile is named nvidia-gpu-l5" }

// toldInvalid has a Pod of it have said that the input is wrong.
func toldInvalid(e *Entry) {
	e.Record.Failures, e.Record.LastFailure = 1, &Failure{ReasonInvalid, "no image", ago(time.Hour)}
}

func refused(e *Entry) {
	e.Refused = &Failure{Reason: "QuotaExceeded", Message: "exceeded quota: gpus"}
}

// failed has it have failed so often, the last time so long ago.
func failed(times int, age time.Duration) func(*Entry) {
	return func(e *Entry) {
		at := ago(age)
		e.Record.Failures, e.Record.LastFailure = times, &Failure{"EngineFailed", "exit 1", at}
		e.Record.BackoffUntil = at.Add(pauseAfter(times))
	}
}

// fails is a Pod whose engine has failed.
func fails(p *Pod) { p.Failure = &Failure{"EngineFailed", "exit 1: unknown flag", now} }

// unschedulable is a Pod that has had no node for so long.
func unschedulable(d time.Duration) func(*Pod) {
	return func(p *Pod) { p.Unschedulable = &Failure{Time: ago(d), Message: "0/2 nodes are available"} }
}

func leaving(p *Pod) { p.Leaving = true }

// text tells a decision: each entry with its number and row, the Pods that get the label (+), lose it
// (-), and are deleted (x), and its failures if they have changed.
func text(m *Model, d *Decision) string {
	var all []string
	for n := range d.Entries {
		e := &d.Entries[n]
		s := fmt.Sprintf("%s %d %s", e.Name, e.Asked.Replicas, e.Row)
		for sign, pods := range map[string][]string{"+": e.Serve, "-": e.Unserve, "x": e.Delete} {
			for _, pod := range pods {
				s += " " + sign + pod
			}
		}
		words := strings.Split(s, " ")
		signs := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w[:1], "+-x") })
		if signs > 0 {
			slices.Sort(words[signs:])
		}
		s = strings.Join(words, " ")
		if r, was := e.Record, m.Entries[n].Record; r.Failures != was.Failures {
			s += fmt.Sprintf(", failures %d", r.Failures)
			if r.Failures > 0 && r.BackoffUntil.IsZero() {
				s += " " + r.LastFailure.Reason
			} else if r.Failures > 0 {
				s += fmt.Sprintf(" %s for %s", r.LastFailure.Reason, r.BackoffUntil.Sub(m.Now))
			}
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}
