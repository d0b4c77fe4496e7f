package rollout

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// parse reads groups such as "old old- new* . mix*": one that runs, one that does not (-), one of
// the new revision that is being updated (*), one without Pods, and one with Pods of both. One with the
// sign + runs, and its turn to be updated has come.
func parse(text string) (groups []Group) {
	for word := range strings.FieldsSeq(text) {
		name := strings.TrimRight(word, "-*+")
		sign := strings.TrimPrefix(word, name)
		g := Group{Runs: (sign == "" || sign == "+") && name != "." && name != "mix", Updating: sign == "*" || sign == "+"}
		switch name {
		case ".":
		case "mix":
			g.Revisions = []string{"old", "new"}
		default:
			g.Revisions = []string{name}
		}
		groups = append(groups, g)
	}
	return groups
}

func TestEachRow(t *testing.T) {
	for name, c := range map[string]struct {
		groups    string
		partition int
		most      int
		current   string
		held      bool
		want      string // revision:row of each group
	}{
		"nothing to do":                          {groups: "new new", want: "new:has begun new:has begun"},
		"the highest goes first":                 {groups: "old old old old", want: "old:waits old:waits old:waits new:its turn"},
		"the next waits for the last":            {groups: "old old mix*", want: "old:waits old:waits new:has begun"},
		"also while its Pods are being deleted":  {groups: "old old .*", want: "old:waits old:waits new:new"},
		"and while it starts":                    {groups: "old old new*", want: "old:waits old:waits new:has begun"},
		"and before its Pods are deleted":        {groups: "old old old+", want: "old:waits old:waits new:is being updated"},
		"one runs again":                         {groups: "old old new+", want: "old:waits new:its turn new:has begun"},
		"two at once, one starts":                {groups: "old old old new*", most: 2, want: "old:waits old:waits new:its turn new:has begun"},
		"two at once":                            {groups: "old old old old", most: 2, want: "old:waits old:waits new:its turn new:its turn"},
		"one that does not run goes first":       {groups: "old- old old new*", want: "new:does not run old:waits old:waits new:has begun"},
		"and counts for nothing":                 {groups: "old- old old", want: "new:does not run old:waits new:its turn"},
		"also when it starts":                    {groups: "new- old old", want: "new:has begun old:waits new:its turn"},
		"a new group that does not run":          {groups: "old old .", want: "old:waits new:its turn new:new"},
		"all that do not run":                    {groups: "old- old- old old", want: "new:does not run new:does not run old:waits new:its turn"},
		"the first two are kept":                 {groups: "old old old old", partition: 2, want: "old:kept old:kept old:waits new:its turn"},
		"a kept one counts for nothing":          {groups: "old- old old old", partition: 2, want: "old:kept old:kept old:waits new:its turn"},
		"a kept one whose turn had come":         {groups: "old* old old", partition: 1, want: "old:kept old:waits old:waits"},
		"a kept one is rebuilt as it was":        {groups: "old . new new", partition: 2, current: "old", want: "old:kept old:kept, without Pods new:has begun new:has begun"},
		"a kept one that was never there is new": {groups: ". .", partition: 2, want: "new:new new:new"},
		"a kept one that was updated before":     {groups: "new new", partition: 2, current: "old", want: "new:has begun new:has begun"},
		"an invalid template is not rolled out":  {groups: "old old- .", held: true, want: "old:held old:held new:new"},
		"a second update in the middle":          {groups: "old old mid", want: "old:waits old:waits new:its turn"},
		"while the first one starts":             {groups: "old old mid*", want: "old:waits old:waits new:is being updated"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &World{Strategy: Strategy{c.partition, max(c.most, 1)}, Present: "new", Current: c.current, Held: c.held, Groups: parse(c.groups)}
			var got []string
			for _, target := range Decide(w) {
				got = append(got, target.Revision+":"+target.Row)
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

func TestResolveRounds(t *testing.T) {
	percent := func(s string) *intstr.IntOrString { return new(intstr.FromString(s)) }
	assert.Equal(t, Strategy{0, 1}, Resolve(nil, nil, 3))
	assert.Equal(t, Strategy{2, 1}, Resolve(percent("50%"), percent("50%"), 3), "50 % of 3 keeps 2, and one may not run")
	assert.Equal(t, Strategy{2, 4}, Resolve(new(intstr.FromInt32(2)), new(intstr.FromInt32(4)), 10))
	assert.Equal(t, Strategy{0, 1}, Resolve(nil, new(intstr.FromInt32(0)), 10), "at least one, or nothing would ever be updated")
}

// TestRolloutEndsAndKeepsGroupsAvailable plays rollouts with groups that fail, templates that
// change in the middle, and partitions that move.
func TestRolloutEndsAndKeepsGroupsAvailable(t *testing.T) {
	for seed := range uint64(2000) {
		play(t, rand.New(rand.NewPCG(seed, 1)), fmt.Sprintf("seed %d", seed))
	}
}

func play(t *testing.T, r *rand.Rand, seed string) {
	t.Helper()
	w := &World{Strategy: Strategy{r.IntN(4), 1 + r.IntN(2)}, Present: "r1", Current: "r0", Groups: parse(strings.Repeat("r0 ", 1+r.IntN(6)))}
	faults := r.IntN(6)
	sick := -1 // a group that never runs from the beginning
	if r.IntN(3) == 0 {
		sick = r.IntN(len(w.Groups))
		w.Groups[sick].Runs = false
	}
	to := make([]string, len(w.Groups)) // the revision that the status says of each group
	taken := map[int]bool{}             // groups that ran when they were updated, and have not run since
	for range 200 {
		before := len(taken)
		for ordinal := range w.Groups {
			g := &w.Groups[ordinal]
			g.Updating = g.Updating && (to[ordinal] == w.Present || !g.Runs)
		}
		for ordinal, target := range Decide(w) {
			g := &w.Groups[ordinal]
			to[ordinal] = target.Revision
			require.NotEmpty(t, target.Revision, seed)
			if g.Updating = target.Updating; g.Runs && !slices.Equal(g.Revisions, []string{target.Revision}) {
				taken[ordinal] = true
			}
			if !slices.Equal(g.Revisions, []string{target.Revision}) { // its Pods are deleted and created again
				if ordinal < w.Partition && len(g.Revisions) > 0 && !slices.Contains(g.Revisions, w.Present) {
					require.Equal(t, g.Revisions[0], target.Revision, "%s: group %d is kept", seed, ordinal)
				}
				g.Revisions, g.Runs = []string{target.Revision}, false
			}
		}
		require.LessOrEqual(t, len(taken), max(before, w.MaxUnavailable), "%s: the rollout takes no more than it may", seed)
		switch n := r.IntN(len(w.Groups)); {
		case faults > 0 && r.IntN(4) == 0:
			faults--
			switch r.IntN(4) {
			case 0:
				w.Groups[n].Runs = false
			case 1:
				w.Groups[n] = Group{Updating: w.Groups[n].Updating}
			case 2:
				if w.Present += "+"; r.IntN(3) == 0 {
					w.Present = "r0"
				}
			case 3:
				w.Partition = r.IntN(4)
			}
		default:
			if w.Groups[n].Runs = len(w.Groups[n].Revisions) > 0 && n != sick; w.Groups[n].Runs {
				delete(taken, n)
			}
		}
	}
	for ordinal, g := range w.Groups {
		if ordinal >= w.Partition {
			require.Equal(t, []string{w.Present}, g.Revisions, "%s: group %d", seed, ordinal)
		}
	}
}

func TestTableOfTheDocumentHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## Rollout\n")
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
