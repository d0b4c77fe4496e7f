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

// TableOf decides about those of which its sentence is true. A V has what its rows may read, and
// nothing else. In a table, the first row whose condition holds gives the step.
type TableOf[V any] struct {
	Name     string
	Sentence string
	// Sees returns what the table reads of a requester; nil: the requester does not come by it.
	Sees func(*seen) *V
	Rows []RowOf[V]
	// Next names the table that those come to for which no row holds; empty: spec/binding.md does
	// not name it.
	Next string
}

// row returns the first row that holds; nil: none does.
func (t *TableOf[V]) row(v *V) *RowOf[V] {
	if at := slices.IndexFunc(t.Rows, func(r RowOf[V]) bool { return r.When(v) }); at >= 0 {
		return &t.Rows[at]
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

// on has a row of a part decide about the whole. It does not hold where there is no such part.
func on[V, P any](part func(*V) *P, r RowOf[P]) RowOf[V] {
	return RowOf[V]{
		r.Name, r.Words, func(v *V) bool { p := part(v); return p != nil && r.When(p) },
		r.Do, func(v *V) Step { return r.Then(part(v)) },
	}
}

// Table is a table of requesters: a [TableOf] what it reads of them.
type Table interface {
	step(*seen) (Step, bool)
	rows() []Row
	without(row string) Table
	markdown() string
}

// Row is what is said of a row in spec/binding.md.
type Row struct {
	Name, Words string
	Do          Action
}

// step returns the step for a requester; false: the requester does not come by the table, or no
// row holds.
func (t *TableOf[V]) step(s *seen) (Step, bool) {
	v := t.Sees(s)
	if v == nil {
		return Step{}, false
	}
	r := t.row(v)
	if r == nil {
		return Step{}, false
	}
	return r.step(v), true
}

func (t *TableOf[V]) rows() (rows []Row) {
	for _, r := range t.Rows {
		rows = append(rows, Row{r.Name, r.Words, r.Do})
	}
	return rows
}

func (t *TableOf[V]) without(row string) Table {
	less := *t
	less.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r RowOf[V]) bool { return r.Name == row })
	return &less
}

// Rows returns all rows, each once.
func Rows(tables []Table) (rows []Row) {
	for _, t := range tables {
		for _, r := range t.rows() {
			if !slices.ContainsFunc(rows, func(has Row) bool { return has.Name == r.Name }) {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// Without returns the tables without a row, for tests.
func Without(tables []Table, row string) (less []Table) {
	for _, t := range tables {
		less = append(less, t.without(row))
	}
	return less
}

// always is the condition of a table's last row.
func always[V any](*V) bool { return true }

// say returns a step with its reason in words.
func say[V any](format string, args ...func(*V) string) func(*V) Step {
	return func(v *V) Step {
		said := make([]any, len(args))
		for n, arg := range args {
			said[n] = arg(v)
		}
		return Step{Why: fmt.Sprintf(format, said...)}
	}
}

// inform returns a step whose reason the requester is told: something is under way.
func inform[V any](reason Reason, format string, args ...func(*V) string) func(*V) Step {
	return func(v *V) Step {
		step := say(format, args...)(v)
		step.Reason = reason
		return step
	}
}

// warn returns a step whose reason the requester is told: somebody has to do something.
func warn[V any](reason Reason, format string, args ...func(*V) string) func(*V) Step {
	return func(v *V) Step {
		step := inform(reason, format, args...)(v)
		step.Warn = true
		return step
	}
}

// again has a step look again after a while.
func again[V any](after func(*V) time.Duration, then func(*V) Step) func(*V) Step {
	return func(v *V) Step {
		step := then(v)
		step.After = after(v)
		return step
	}
}
