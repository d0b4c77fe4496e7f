package decide

import (
	"fmt"
	"slices"
	"time"
)

// Row is a row of a table.
type Row struct {
	Name string
	// Words say when the row holds, for spec/binding.md. What the sentence of its table says
	// they do not say again.
	Words string
	When  func(*Observation) bool
	Do    Action
	// Then returns the step. It has the action Do unless it names another.
	Then func(*Observation) Step
}

// Table decides for the requesters of which its sentence is true. In a table, the first row
// whose condition holds gives the step.
type Table struct {
	Name     string
	Sentence string
	// Of reports whether the table is that of a requester. Nil: it is if a row of it holds.
	Of   func(*Observation) bool
	Rows []Row
	// Else is the table of those for which no row holds; nil: there is none.
	Else *Table
}

// Tables are the tables of spec/binding.md. A requester is in the first one that is its own.
var Tables = []Table{leaving, unbinding, stranded, preparing, reaching, recording, asking, swapping, serving}

// Decide returns the step for one requester, and why. It is a pure function.
func Decide(o Observation) Step { return By(&o, Tables) }

// By decides by the given tables.
func By(o *Observation, tables []Table) Step {
	for n := range tables {
		t := &tables[n]
		if t.Of != nil && !t.Of(o) {
			continue
		}
		for ; t != nil && (t.Of == nil || t.Of(o)); t = t.Else {
			if at := slices.IndexFunc(t.Rows, func(r Row) bool { return r.When(o) }); at >= 0 {
				return o.stepOf(&t.Rows[at])
			}
		}
		if tables[n].Of != nil {
			break
		}
	}
	return Step{Do: Nothing, Why: "served"}
}

// stepOf returns the step of a row, or what is done instead of it now.
func (o *Observation) stepOf(r *Row) Step {
	step := r.Then(o)
	step.Rule = r.Name
	if step.Do == "" {
		step.Do = r.Do
	}
	step = o.spaced(o.paused(step))
	step.Shorten()
	return o.againToEndHold(o.Once(step))
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
