package binding

import (
	"os"
	"regexp"
	"slices"
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
	for n, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			others := slices.Delete(slices.Clone(rules), n, n+1)
			for _, e := range examples {
				if e.row != r.name {
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
func decided(o *Observation, rules []rule) (step Step, ok bool) {
	defer func() { _ = recover() }()
	return decide(o, rules), true
}

var row = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)

func TestTheTableInSpecHasTheRowsOfDecide(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/binding.md")
	require.NoError(t, err)
	want := map[string]Action{}
	for _, e := range examples {
		if e.do != Nothing || want[e.row] == "" { // a "tell" that was told is nothing
			want[e.row] = e.do
		}
	}
	var names []string
	for _, found := range row.FindAllStringSubmatch(string(text), -1) {
		if found[1] == "row" {
			continue
		}
		names = append(names, found[1])
		assert.Equal(t, string(want[found[1]]), found[3], found[1])
	}
	var rows []string
	for _, r := range rules {
		rows = append(rows, r.name)
	}
	assert.Equal(t, rows, names)
}
