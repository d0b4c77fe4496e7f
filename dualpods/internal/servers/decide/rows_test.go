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
				without, ok := decided(&e.o, others)
				if !ok || without.Do != e.do || without.Why != Decide(e.o).Why {
					return
				}
			}
			t.Errorf("nothing changes without it")
		})
	}
}

// decided is not ok where a row rests on what an earlier one has made sure of.
func decided(o *Observation, tables []Table) (step Step, ok bool) {
	defer func() { _ = recover() }()
	return By(o, tables), true
}

// A table of a requester that no row decides about would leave the requester as it is. Only the
// last one may: its requester is served.
func TestEachTableEndsOrPassesOn(t *testing.T) {
	for n := range Tables {
		last := &Tables[n]
		for last.Else != nil {
			last = last.Else
		}
		assert.LessOrEqual(t, len(Tables[n].Rows), 25, Tables[n].Name)
		if last.Of == nil || last.Name == serving.Name {
			continue
		}
		end := last.Rows[len(last.Rows)-1]
		assert.Contains(t, []string{"in all other cases"}, end.Words, last.Name)
		assert.True(t, end.When(&Observation{}), last.Name)
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
