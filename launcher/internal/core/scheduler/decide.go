// Package scheduler decides which models are awake on which GPUs, from the requests that wait
// for them, and asks the launcher for the starts, wakes, sleeps and swaps that bring them there.
//
// [Decide] is pure; spec/scheduling.md has its tables. [Scheduler] keeps the requests, looks at
// the launcher's instances whenever something changes, and carries the decisions out.
package scheduler

import (
	"cmp"
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

	GPUs        []string // UUIDs that it has to be on; empty: any Count of them
	Count       int      // how many GPUs it needs; 0: it runs on the processor
	Bytes       uint64   // device memory that it takes of each GPU; 0: not known, so nothing is awake beside it
	Concurrency int      // how many requests it answers at once; 0: any number

	State    launcher.State    // of its instance; empty: it has none
	On       []string          // GPUs of its instance
	Residue  map[string]uint64 // of the AsleepBytes of its GPUs, what it holds while it sleeps
	Hindered string            // why it can get no instance; empty: it can
	Busy     bool              // a swap, a client or an earlier decision is changing its state
	Since    time.Time         // when it entered State
	LastUsed time.Time         // the end of its last answer
	InFlight int               // requests that are being answered
	Repeats  bool              // since it is awake, a request came soon after the end of the last answer
	Held     int               // requests that wait at its gate
	Return   time.Duration     // what its last wake or start took; 0: it is not known

	Waiting      int       // requests that wait for it
	WaitingSince time.Time // when the first of them came
	Retired      bool      // its instance ends as soon as nobody uses it
	Preload      bool      // to be awake whenever there is room for it
	NotBefore    time.Time // after a failure: when it may be tried again

	SleepAfter time.Duration // how long it stays awake without a request; 0: for ever
	SleepLevel int           // of that sleep
	StopAfter  time.Duration // how long it is kept without a request; 0: for ever
}

// isChanging reports whether the model's instance is on its way to another state.
func (m *Model) isChanging() bool { return m.Busy || m.State.Moving() }

// waitsSince returns since when a model waits for its turn. Requests that it left unanswered at
// the end of its last turn give it no place before others that have waited meanwhile.
func (m *Model) waitsSince() time.Time {
	if m.Since.After(m.WaitingSince) {
		return m.Since
	}
	return m.WaitingSince
}

// World is everything that a decision depends on.
type World struct {
	Now    time.Time
	GPUs   []GPU // in the order in which they are filled
	Models []Model

	// Turn is how long a model that is in use stays awake at least while others wait.
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

// The rows of the tables in spec/scheduling.md.
const (
	rowBacksOff     = "backs off"
	rowWakes        = "wakes"
	rowStarts       = "starts"
	rowWakesInTurn  = "wakes in turn"
	rowStartsInTurn = "starts in turn"
	rowMoves        = "moves"
	rowTurn         = "turn of another"
	rowHands        = "GPU changes hands"
	rowHigher       = "higher priority"
	rowPinned       = "pinned there"
	rowPreload      = "no room to preload"
	rowNoSuchGPU    = "no such GPU"
	rowTooFewGPUs   = "too few GPUs"
	rowNoMemory     = "no memory"
	rowHindered     = "hindered"

	rowNeither   = "neither awake nor asleep"
	rowPreloaded = "preloaded"
	rowInUse     = "in use"
	rowRetired   = "retired"
	rowLeaving   = "leaving"
	rowRefused   = "refused before"
	rowStopTime  = "stop_after is over"
	rowSleepTime = "sleep_after is over"
	rowStays     = "stays"
)

// Action is something to begin now.
type Action struct {
	Row   string // of the tables in spec/scheduling.md
	Kind  Kind
	Model string
	GPUs  []string // where it starts or wakes
	Out   []string // the models that are put to sleep for it, in one swap; none: it fits beside the rest
	Level int      // of a sleep
}

// Wait says why a model that is wanted is not brought in now.
type Wait struct {
	Row    string // of the tables in spec/scheduling.md
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

// Decide returns what to do now. On GPUs where an action brings a model in, no other action
// changes what is awake.
func Decide(w World) Decision {
	d := &decider{World: w, taken: map[string]string{}, awake: map[string][]*Model{}}
	for n := range d.Models {
		m := &d.Models[n]
		if m.isChanging() {
			d.take(m.On, m.Name)
		}
		if m.State == launcher.Awake {
			for _, g := range m.On {
				d.awake[g] = append(d.awake[g], m)
			}
		}
	}
	for _, m := range d.wanted() {
		d.bringIn(m)
	}
	for n := range d.Models {
		d.retire(&d.Models[n])
	}
	return d.out
}

type decider struct {
	World
	awake map[string][]*Model // by GPU
	taken map[string]string   // by GPU: the model that moves there, or that waits for it first
	out   Decision
}

// take notes that GPUs are a model's, unless they are another's already.
func (d *decider) take(gpus []string, model string) {
	for _, g := range gpus {
		if d.taken[g] == "" {
			d.taken[g] = model
		}
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
		if (m.Waiting > 0 || m.Preload && !m.Retired) && !m.isChanging() && m.State != launcher.Awake {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *Model) int {
		return cmp.Or(cmp.Compare(min(b.Waiting, 1), min(a.Waiting, 1)), cmp.Compare(b.Priority, a.Priority), a.waitsSince().Compare(b.waitsSince()))
	})
	return all
}

// bringIn decides how a model becomes awake, or why it waits.
func (d *decider) bringIn(m *Model) {
	if m.NotBefore.After(d.Now) {
		d.wait(m, placement{rank: blocked, row: rowBacksOff, until: m.NotBefore})
		return
	}
	if m.Hindered != "" {
		d.wait(m, placement{rank: impossible, row: rowHindered})
		return
	}
	p, moves := d.place(m)
	switch {
	case p.rank > leaves:
		d.wait(m, p)
	case moves:
		d.take(p.gpus, m.Name)
		d.out.Actions = append(d.out.Actions, Action{Row: rowMoves, Kind: Stop, Model: m.Name})
	default:
		a := Action{Row: rowStarts, Kind: Start, Model: m.Name, GPUs: p.gpus, Out: p.out}
		inTurn := len(p.out) > 0
		switch asleep := m.State == launcher.Sleeping; {
		case asleep && inTurn:
			a.Row, a.Kind = rowWakesInTurn, Wake
		case asleep:
			a.Row, a.Kind = rowWakes, Wake
		case inTurn:
			a.Row = rowStartsInTurn
		}
		d.take(p.gpus, m.Name)
		for _, g := range p.gpus {
			for _, out := range d.awake[g] {
				if inTurn {
					d.take(out.On, m.Name)
				}
			}
		}
		d.out.Actions = append(d.out.Actions, a)
	}
}

// wait notes why a model waits. If its turn will come, no model after it gets its GPUs first.
func (d *decider) wait(m *Model, p placement) {
	reason := d.reason(m, p)
	if p.rank == later && m.Waiting > 0 {
		d.take(p.gpus, m.Name)
	}
	d.out.Waits = append(d.out.Waits, Wait{Row: p.row, Model: m.Name, Reason: reason, Until: p.until, Hopeless: p.rank == impossible})
	d.wakeAt(p.until)
}
