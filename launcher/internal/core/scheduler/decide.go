// Package scheduler decides which models are awake on which GPUs, from the requests that wait
// for them, and asks the launcher for the starts, wakes, sleeps and swaps that brings them there.
//
// [Decide] is pure; spec/scheduling.md has its rules. [Scheduler] keeps the requests, looks at
// the launcher's instances whenever something changes, and carries the decisions out.
package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
)

// GPU is a device.
type GPU struct {
	UUID       string
	TotalBytes uint64
	// ForeignBytes are used by processes that are not the launcher's.
	ForeignBytes uint64
	// AsleepBytes are held by sleepers. The launcher evicts sleepers for room.
	AsleepBytes uint64
}

// Model is a model, with its instance if it has one.
type Model struct {
	Name     string
	Priority int  // the higher one goes first
	Pinned   bool // once awake, it leaves for no other model

	GPUs  []string // UUIDs that it has to be on; empty: any Count of them
	Count int      // how many GPUs it needs
	Bytes uint64   // device memory that it takes of each GPU; 0: all of it

	State    launcher.State // of its instance; empty: it has none
	On       []string       // GPUs of its instance
	Busy     bool           // a swap, a client or an earlier decision is changing its state
	Since    time.Time      // when it entered State
	LastUsed time.Time      // the end of its last answer
	InFlight int            // requests that are being answered
	Held     int            // requests that wait at its gate
	Return   time.Duration  // what its last wake or start took; 0: it is not known

	Waiting      int       // requests that wait for it
	WaitingSince time.Time // when the first of them came
	Concurrency  int       // requests at once; 0: no limit
	Retired      bool      // its instance ends as soon as nobody uses it
	Preload      bool      // to be awake whenever there is room for it
	NotBefore    time.Time // after a failure: when it may be tried again

	SleepAfter time.Duration // how long it stays awake without a request; 0: for ever
	SleepLevel int           // of that sleep
	StopAfter  time.Duration // how long it is kept without a request; 0: for ever
}

// World is everything that a decision depends on.
type World struct {
	Now    time.Time
	GPUs   []GPU // in the order in which they are filled
	Models []Model

	// Turn is how long a model that has requests stays awake at least while others wait.
	Turn time.Duration
	// MinResidency is how long every model stays awake at least.
	MinResidency time.Duration
}

// Kind is what an Action does.
type Kind string

// The kinds of actions.
const (
	Start Kind = "start" // the model gets an instance, or its ended instance is started again
	Wake  Kind = "wake"
	Sleep Kind = "sleep"
	Stop  Kind = "stop" // its instance is deleted
)

// Action is something to begin now.
type Action struct {
	Kind  Kind
	Model string
	GPUs  []string // where it starts or wakes
	Out   []string // the models that are put to sleep for it, in one swap; none: it fits beside the rest
	Level int      // of a sleep
}

// Wait says why a model that is wanted is not brought in now.
type Wait struct {
	Model  string
	Reason string
	Until  time.Time // when to decide again, if nothing changes before; zero: only a change helps
	// Hopeless: no turn of the models on the GPUs helps, such as for want of memory.
	Hopeless bool
}

// Decision is what Decide finds.
type Decision struct {
	Actions []Action
	Waits   []Wait
	Next    time.Time // when to decide again, if nothing changes before; zero: only after a change
}

// Decide returns what to do now. Its actions do not touch each other's GPUs.
func Decide(w World) Decision {
	d := &decider{World: w, taken: map[string]string{}}
	for n := range d.Models {
		m := &d.Models[n]
		if m.Busy || m.State.Moving() {
			d.take(m.On, m.Name)
		}
	}
	for _, m := range d.wanted() {
		d.bringIn(m)
	}
	for n := range d.Models {
		d.retire(&d.Models[n])
	}
	for _, wait := range d.out.Waits {
		d.wakeAt(wait.Until)
	}
	return d.out
}

type decider struct {
	World
	taken map[string]string // by GPU: the model that moves there, or that waits for it first
	out   Decision
}

func (d *decider) take(gpus []string, model string) {
	for _, g := range gpus {
		d.taken[g] = model
	}
}

// wakeAt notes a time to decide again.
func (d *decider) wakeAt(t time.Time) {
	if t.After(d.Now) && (d.out.Next.IsZero() || t.Before(d.out.Next)) {
		d.out.Next = t
	}
}

// wanted returns the models to bring in: by priority, then those that wait longest, and at last
// those that are to be preloaded.
func (d *decider) wanted() []*Model {
	var all []*Model
	for n := range d.Models {
		m := &d.Models[n]
		if (m.Waiting > 0 || m.Preload) && !m.Busy && !m.State.Moving() && m.State != launcher.Awake {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *Model) int {
		if aWaits, bWaits := a.Waiting > 0, b.Waiting > 0; aWaits != bWaits {
			if aWaits {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.WaitingSince.Compare(b.WaitingSince))
	})
	return all
}

// bringIn decides how a model becomes awake, or why it waits.
func (d *decider) bringIn(m *Model) {
	if m.NotBefore.After(d.Now) {
		d.out.Waits = append(d.out.Waits, Wait{Model: m.Name, Reason: "it failed, and is tried again later", Until: m.NotBefore})
		return
	}
	p := d.place(m)
	switch {
	case p.never != "":
		d.out.Waits = append(d.out.Waits, Wait{Model: m.Name, Reason: p.never, Hopeless: p.hopeless})
	case p.reason != "":
		if m.Waiting > 0 {
			d.take(p.gpus, m.Name) // so that no later request gets there first
		}
		d.out.Waits = append(d.out.Waits, Wait{Model: m.Name, Reason: p.reason, Until: p.until})
	default:
		kind := Start
		if m.State == launcher.Sleeping {
			kind = Wake
		}
		d.take(p.gpus, m.Name)
		for _, out := range p.out {
			d.take(d.model(out).On, m.Name)
		}
		d.out.Actions = append(d.out.Actions, Action{Kind: kind, Model: m.Name, GPUs: p.gpus, Out: p.out})
	}
}

func (d *decider) model(name string) *Model {
	n := slices.IndexFunc(d.Models, func(m Model) bool { return m.Name == name })
	return &d.Models[n]
}

// retire decides whether a model that nobody uses falls asleep or ends.
func (d *decider) retire(m *Model) {
	idle := m.InFlight == 0 && m.Waiting == 0 && !m.Busy && (!m.Preload || m.Retired)
	for _, g := range m.On {
		if by := d.taken[g]; by != "" && by != m.Name && m.State == launcher.Awake {
			idle = false // it is about to leave
		}
	}
	if !idle || m.State != launcher.Awake && m.State != launcher.Sleeping {
		return
	}
	used := m.LastUsed
	if m.State == launcher.Awake && m.Since.After(used) {
		used = m.Since
	}
	ends, sleeps := used.Add(m.StopAfter), used.Add(m.SleepAfter)
	switch {
	case m.Retired, m.StopAfter > 0 && !ends.After(d.Now):
		d.out.Actions = append(d.out.Actions, Action{Kind: Stop, Model: m.Name})
		return
	case m.SleepAfter > 0 && m.State == launcher.Awake && !sleeps.After(d.Now):
		d.out.Actions = append(d.out.Actions, Action{Kind: Sleep, Model: m.Name, Level: m.SleepLevel})
		return
	}
	if m.StopAfter > 0 {
		d.wakeAt(ends)
	}
	if m.SleepAfter > 0 && m.State == launcher.Awake {
		d.wakeAt(sleeps)
	}
}

// explain formats a reason.
func explain(format string, args ...any) string { return fmt.Sprintf(format, args...) }
