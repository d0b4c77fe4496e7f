package scaling

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parse reads groups such as "2>3 3- 3* .": a group that has 2 replicas and is to get 3; one that has
// the 3 that it is to have and does not run; one that is being scaled and does not run; a new one. A
// group such as "3+-" was given more replicas when it did not run.
func parse(text string, wants int) (groups []Group) {
	for word := range strings.FieldsSeq(text) {
		g := Group{Wants: map[string]int{"decode": wants}}
		word, fails := strings.CutSuffix(word, "-")
		word, g.Scales = strings.CutSuffix(word, "*")
		word, g.Grown = strings.CutSuffix(word, "+")
		g.Runs = !fails && !g.Scales
		if word != "." {
			n := 0
			_, _ = fmt.Sscanf(word, "%d", &n)
			g.Has = map[string]int{"decode": n}
		}
		groups = append(groups, g)
	}
	return groups
}

func TestEachRow(t *testing.T) {
	for name, c := range map[string]struct {
		groups string
		want   string // number:row of each group; * if the others wait for it, + if it has grown
	}{
		"nothing to do":                            {"3 3", "3:as it should be 3:as it should be"},
		"a new group gets its number at once":      {". 3", "3:new 3:as it should be"},
		"the highest goes first":                   {"2 2 2 2", "2:waits 2:waits 2:waits 3:its turn*"},
		"the next waits until the last runs":       {"2 2 2 3*", "2:waits 2:waits 2:waits 3:is being scaled*"},
		"the last runs":                            {"2 2 2 3", "2:waits 2:waits 3:its turn* 3:as it should be"},
		"fewer in the same order":                  {"4 4 3", "4:waits 3:its turn* 3:as it should be"},
		"one that does not run loses nothing":      {"2 2- 2", "2:waits 3:does not run+ 3:its turn*"},
		"it holds up no other one":                 {"2 2 3-", "2:waits 3:its turn* 3:as it should be"},
		"one that has grown does not run yet":      {"2 2 3+-", "2:waits 3:its turn* 3:as it should be+"},
		"one that gets fewer has not grown":        {"4- 3", "3:does not run 3:as it should be"},
		"another number for one that takes a turn": {"2 2* 4", "2:waits 3:is being scaled* 4:waits"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, target := range Decide(parse(c.groups, 3)) {
				says := fmt.Sprintf("%d:%s", target.Numbers["decode"], target.Row)
				if target.Scales {
					says += "*"
				}
				if target.Grown {
					says += "+"
				}
				got = append(got, says)
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

func TestOfTheReplicasTheRightOnesGo(t *testing.T) {
	ready := func(ordinal int, cost int32) Replica { return Replica{ordinal, true, cost} }
	for name, c := range map[string]struct {
		n    int
		has  []Replica
		want []int
	}{
		"the first ones are made":                {2, nil, []int{0, 1}},
		"none":                                   {0, []Replica{ready(0, 0)}, []int{}},
		"the unready one goes":                   {2, []Replica{ready(0, 0), {1, false, 7}, ready(2, 0)}, []int{0, 2}},
		"then the cheapest one":                  {2, []Replica{ready(0, 5), ready(1, -3), ready(2, 0)}, []int{0, 2}},
		"then the highest one":                   {2, []Replica{ready(0, 0), ready(2, 0), ready(1, 0)}, []int{0, 1}},
		"of several unready ones the costly":     {1, []Replica{{0, false, 0}, {1, false, 1}}, []int{1}},
		"the others keep their numbers":          {2, []Replica{ready(0, 0), ready(2, 0)}, []int{0, 2}},
		"also those that are not ready":          {2, []Replica{{0, false, 0}, {2, false, 0}}, []int{0, 2}},
		"a new one gets the lowest that is free": {3, []Replica{ready(0, 0), ready(2, 0)}, []int{0, 1, 2}},
		"a lost one too":                         {2, []Replica{ready(2, 0)}, []int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, Choose(c.n, c.has)) })
	}
}

func TestChoiceDoesNotChangeOnceItsVictimsAreGone(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		var has []Replica
		for ordinal := range 8 {
			if r.IntN(3) > 0 {
				has = append(has, Replica{ordinal, r.IntN(2) > 0, int32(r.IntN(3))})
			}
		}
		n := r.IntN(8)
		chosen := Choose(n, has)
		require.Len(t, chosen, n)
		has = slices.DeleteFunc(has, func(r Replica) bool { return !slices.Contains(chosen, r.Ordinal) })
		for i := range has { // whatever becomes of the others
			has[i].Ready, has[i].Cost = r.IntN(2) > 0, int32(r.IntN(3))
		}
		require.Equal(t, chosen, Choose(n, has), "seed %d", seed)
	}
}

func TestRatioHoldsOneRoleBack(t *testing.T) {
	for name, c := range map[string]struct {
		prefill, decode int
		ratio           *Ratio
		want            [2]int
		held            string
	}{
		"no ratio":                         {1, 9, nil, [2]int{1, 9}, ""},
		"within it":                        {2, 5, &Ratio{Numerator: 1, Denominator: 2, Min: 50, Max: 200}, [2]int{2, 5}, ""},
		"at its ends":                      {2, 8, &Ratio{Numerator: 1, Denominator: 2, Min: 50, Max: 200}, [2]int{2, 8}, ""},
		"too many of the denominator":      {2, 9, &Ratio{Numerator: 1, Denominator: 2, Min: 50, Max: 200}, [2]int{2, 8}, "role decode gets 8 replicas, and not 9, as there are 2 of role prefill"},
		"too many of the numerator":        {9, 4, &Ratio{Numerator: 1, Denominator: 2, Min: 50, Max: 200}, [2]int{4, 4}, "role prefill gets 4 replicas, and not 9, as there are 4 of role decode"},
		"rounded down":                     {1, 3, &Ratio{Numerator: 2, Denominator: 5, Min: 100, Max: 100}, [2]int{1, 2}, "role decode gets 2"},
		"one stays":                        {3, 1, &Ratio{Numerator: 1, Denominator: 4, Min: 100, Max: 100}, [2]int{1, 1}, "role prefill gets 1"},
		"no lower end":                     {1, 900, &Ratio{Numerator: 1, Denominator: 2, Max: 100}, [2]int{1, 900}, ""},
		"a role of nothing bounds nothing": {0, 9, &Ratio{Numerator: 1, Denominator: 2, Min: 100, Max: 100}, [2]int{0, 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.ratio != nil {
				c.ratio.NumeratorRole, c.ratio.DenominatorRole = "prefill", "decode"
			}
			asked := map[string]int{"prefill": c.prefill, "decode": c.decode, "router": 1}
			before := maps.Clone(asked)
			numbers, held := c.ratio.Bound(asked)
			assert.Equal(t, map[string]int{"prefill": c.want[0], "decode": c.want[1], "router": 1}, numbers)
			assert.Equal(t, before, asked)
			assert.Contains(t, held, c.held)
			assert.Equal(t, c.held == "", held == "")
		})
	}
}

// TestScalingEndsAndTakesOneGroupAtATime plays changes of the number, also in the middle, with groups
// that fail.
func TestScalingEndsAndTakesOneGroupAtATime(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		groups := parse(strings.Repeat("2 ", 1+r.IntN(6)), 2)
		faults := r.IntN(6)
		for range 200 {
			for n, target := range Decide(groups) {
				g := &groups[n]
				if !maps.Equal(g.Has, target.Numbers) {
					g.Has, g.Runs = target.Numbers, false
				}
				g.Scales = target.Scales && !g.Runs
			}
			scaled := 0
			for _, g := range groups {
				if g.Scales {
					scaled++
				}
			}
			require.LessOrEqual(t, scaled, 1, "seed %d", seed)
			n := r.IntN(len(groups))
			switch {
			case faults > 0 && r.IntN(3) == 0:
				faults--
				if r.IntN(2) == 0 {
					groups[n].Runs = false
					break
				}
				wants := map[string]int{"decode": r.IntN(4)}
				for n := range groups {
					groups[n].Wants = wants
				}
			default:
				groups[n].Runs, groups[n].Scales = true, false
			}
		}
		for n, g := range groups {
			require.Equal(t, g.Wants, g.Has, "seed %d: group %d", seed, n)
		}
	}
}

func TestTableOfTheDocumentHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## Scaling\n")
	var written, coded []string
	for _, line := range regexp.MustCompile(`(?m)^\| ([^|]+) \|.*\|$`).FindAllStringSubmatch(strings.Split(section, "\n## ")[0], -1) {
		if line[1] != "row" {
			written = append(written, line[1])
		}
	}
	for _, r := range rows {
		coded = append(coded, r.name)
	}
	assert.Equal(t, coded, written)
}
