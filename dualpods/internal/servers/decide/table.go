package decide

import (
	"fmt"
	"slices"
	"time"
)

// RowOf is a row of a table that decides about a V.
type RowOf[V any] struct {
	Name string
	// Words say when the row holds, for spec/binding.md. They do not repeat the sentence of the
	// table.
	Words string
	When  func(*V) bool
	Do    Action
	// Then returns the step. It has the action Do unless it names another.
	Then func(*V) Step
}

// TableOf decides about those of which its sentence is true. In a table, the first row whose
// condition holds gives the step.
type TableOf[V any] struct {
	Name     string
	Sentence string
	// Of reports whether the table is that of a V. Nil: it is if a row of it holds.
	Of   func(*V) bool
	Rows []RowOf[V]
	// Else is the table of those for which no row holds; nil: there is none.
	Else *TableOf[V]
}

// Row is a row of a table that decides about a requester.
type Row = RowOf[Observation]

// Table decides about requesters.
type Table = TableOf[Observation]

// row returns the first row that holds, of the table or of those that it passes on to; nil: none
// does.
func (t *TableOf[V]) row(v *V) *RowOf[V] {
	for ; t != nil && (t.Of == nil || t.Of(v)); t = t.Else {
		if at := slices.IndexFunc(t.Rows, func(r RowOf[V]) bool { return r.When(v) }); at >= 0 {
			return &t.Rows[at]
		}
	}
	return nil
}

// step returns the step of a row.
func (r *RowOf[V]) step(v *V) Step {
	step := r.Then(v)
	step.Rule = r.Name
	if step.Do == "" {
		step.Do = r.Do
	}
	return step
}

// Tables are the tables of spec/binding.md. A requester is in the first one that is its own.
var Tables = []Table{leaving, unbinding, stranded, preparing, reaching, recording, asking, swapping, serving}

// Decide returns the step for one requester, and why. It is a pure function.
func Decide(o Observation) Step { return By(&o, Tables) }

// By decides by the given tables.
func By(o *Observation, tables []Table) Step {
	for n := range tables {
		t := &tables[n]
		if r := t.row(o); r != nil {
			step := o.spaced(o.paused(r.step(o)))
			step.Shorten()
			return o.againToEndHold(o.Once(step))
		}
		if t.Of != nil && t.Of(o) {
			break
		}
	}
	return Step{Do: Nothing, Why: "served", After: o.untilFoundReady()}
}

// Rows returns all rows, each once.
func Rows(tables []Table) (rows []Row) {
	seen := map[string]bool{}
	for n := range tables {
		for t := &tables[n]; t != nil; t = t.Else {
			for _, r := range t.Rows {
				if !seen[r.Name] {
					seen[r.Name] = true
					rows = append(rows, r)
				}
			}
		}
	}
	return rows
}

// Without returns the tables without a row, for tests.
func Without(tables []Table, row string) []Table {
	less := slices.Clone(tables)
	for n := range less {
		less[n].Rows = slices.DeleteFunc(slices.Clone(less[n].Rows), func(r Row) bool { return r.Name == row })
		if less[n].Else != nil {
			less[n].Else = &Without([]Table{*less[n].Else}, row)[0]
		}
	}
	return less
}

// words returns a phrase about an observation.
type words = func(*Observation) string

// say returns a step with its reason in words.
func say(format string, args ...words) func(*Observation) Step {
	return func(o *Observation) Step {
		said := make([]any, len(args))
		for n, arg := range args {
			said[n] = arg(o)
		}
		return Step{Why: fmt.Sprintf(format, said...)}
	}
}

// inform returns a step whose reason the requester is told: something is under way.
func inform(reason Reason, format string, args ...words) func(*Observation) Step {
	return func(o *Observation) Step {
		step := say(format, args...)(o)
		step.Reason = reason
		return step
	}
}

// warn returns a step whose reason the requester is told: somebody has to do something.
func warn(reason Reason, format string, args ...words) func(*Observation) Step {
	return func(o *Observation) Step {
		step := inform(reason, format, args...)(o)
		step.Warn = true
		return step
	}
}

// again has a step look again after a while.
func again(after func(*Observation) time.Duration, then func(*Observation) Step) func(*Observation) Step {
	return func(o *Observation) Step {
		step := then(o)
		step.After = after(o)
		return step
	}
}
