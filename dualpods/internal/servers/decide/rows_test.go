package decide

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryObservationIsDecidedByItsRow(t *testing.T) {
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			step := Decide(e.o)
			assert.Equal(t, e.row, step.Rule, step.Why)
			assert.Equal(t, e.do, step.Do)
			assert.NotEmpty(t, step.Why)
			assert.NotContains(t, step.Why, "%!", "the reason is whole")
		})
	}
}

func TestNoRowCanBeMissed(t *testing.T) {
	for _, r := range Rows(Tables) {
		t.Run(r.Name, func(t *testing.T) {
			others := Without(Tables, r.Name)
			for _, e := range examples {
				if e.row != r.Name {
					continue
				}
				without := By(&e.o, others)
				if without.Do != e.do || without.Why != Decide(e.o).Why {
					return
				}
			}
			t.Errorf("nothing changes without it")
		})
	}
}

// No row rests on what an earlier one has made sure of.
func TestEveryRowCanBeReadByItself(t *testing.T) {
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			s := see(&e.o)
			for _, steps := range [][]Step{
				allSteps(&leaving, s), allSteps(&unbinding, s), allSteps(&resting, s), allSteps(&stranded, s), allSteps(&preparing, s),
				allSteps(&reaching, s), allSteps(&recording, s), allSteps(&changing, s), allSteps(&asking, s), allSteps(&swapping, s), allSteps(&serving, s),
			} {
				for _, step := range steps {
					assert.NotEmpty(t, step.Why, step.Rule)
				}
			}
		})
	}
}

// allSteps returns the steps of all rows of a table that hold.
func allSteps[V any](table *TableOf[V], s *seen) (steps []Step) {
	v := table.Sees(s)
	if v == nil {
		return nil
	}
	for _, r := range table.Rows {
		if r.When(v) {
			steps = append(steps, r.step(v))
		}
	}
	return steps
}

// A requester that no row decides about would be left as it is. In the table serving that is right:
// the requester is served.
func TestEveryRequesterComesToATableThatEnds(t *testing.T) {
	for name, e := range examples {
		s := see(&e.o)
		ends := 0
		for _, comesBy := range []bool{s.resting != nil, s.recording != nil, s.changing != nil, s.asking != nil, s.swapping != nil, s.serving != nil} {
			if comesBy {
				ends++
			}
		}
		switch {
		case s.leaving != nil && s.leaving.Bound == nil: // it has nothing that could be put to rest
			assert.Zero(t, ends, name)
		case s.staying != nil && s.staying.launcherMissing(): // it waits for a launcher
			assert.Zero(t, ends, name)
		default:
			assert.Equal(t, 1, ends, name)
		}
	}
	assertEnds(t, &resting)
	assertEnds(t, &recording)
	assertEnds(t, &changing)
	assertEnds(t, &asking)
	assertEnds(t, &swapping)
}

// assertEnds fails unless the last row of a table always holds.
func assertEnds[V any](t *testing.T, table *TableOf[V]) {
	t.Helper()
	end := table.Rows[len(table.Rows)-1]
	assert.Equal(t, "in all other cases", end.Words, table.Name)
	for name, e := range examples {
		if v := table.Sees(see(&e.o)); v != nil {
			assert.True(t, end.When(v), "%s: %s", table.Name, name)
		}
	}
}

func TestExampleOfEachRowHasTheRowsAction(t *testing.T) {
	for _, r := range Rows(Tables) {
		found := false
		for _, e := range examples {
			found = found || e.row == r.Name && e.do == r.Do
		}
		assert.True(t, found, r.Name)
	}
}

func TestSpecHasTheTables(t *testing.T) {
	const path = "../../../../spec/binding.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	want := string(text)
	for name, section := range Sections() {
		before, rest, ok := strings.Cut(want, "<!-- "+name+": make generate -->\n")
		require.True(t, ok, name)
		_, after, ok := strings.Cut(rest, "<!-- end of "+name+" -->\n")
		require.True(t, ok, name)
		want = before + "<!-- " + name + ": make generate -->\n" + section + "\n<!-- end of " + name + " -->\n" + after
	}
	if os.Getenv("WRITE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // a document
		return
	}
	assert.Equal(t, want, string(text), "run: make generate")
}
