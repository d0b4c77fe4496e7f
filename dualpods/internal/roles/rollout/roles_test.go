package rollout

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parseReplicas reads replicas such as "old old- new new- .": outdated ones and others, that are ready
// or not (-), and one without Pods.
func parseReplicas(text string) (all []Replica) {
	for word := range strings.FieldsSeq(text) {
		name, fails := strings.CutSuffix(word, "-")
		all = append(all, Replica{IsThere: name != ".", Outdated: name == "old", Ready: !fails && name != "."})
	}
	return all
}

func TestEachRowOfRoles(t *testing.T) {
	for name, c := range map[string]struct {
		replicas  string
		partition int
		most      int
		noOld     bool
		want      string // row of each replica
	}{
		"nothing to do":                        {replicas: "new new-", want: "up to date, up to date"},
		"the highest goes first":               {replicas: "old old old", want: "waits, waits, its turn"},
		"the next waits for the last":          {replicas: "old old new-", want: "waits, waits, up to date"},
		"also while its Pods are deleted":      {replicas: "old old .", want: "waits, waits, new"},
		"the last is ready":                    {replicas: "old old new", want: "waits, its turn, up to date"},
		"two may not be ready":                 {replicas: "old old old new-", most: 2, want: "waits, waits, its turn, up to date"},
		"one that is not ready goes first":     {replicas: "old- old new", want: "does not run, waits, up to date"},
		"the first two are kept":               {replicas: "old old old old-", partition: 2, want: "kept, kept, waits, does not run"},
		"a kept one counts for nothing":        {replicas: "old- old old old", partition: 1, want: "kept, waits, waits, its turn"},
		"nor does one without Pods":            {replicas: ". old old old", partition: 1, want: "kept, without Pods, waits, waits, its turn"},
		"a kept one is rebuilt as it was":      {replicas: ". old new", partition: 2, want: "kept, without Pods, kept, up to date"},
		"a kept one that was never there":      {replicas: ". .", partition: 2, noOld: true, want: "new, new"},
		"a kept one that was updated before":   {replicas: "new old", partition: 2, want: "up to date, kept"},
		"those that are kept do not go before": {replicas: "old old", partition: 1, want: "kept, its turn"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &RoleWorld{Strategy: Strategy{c.partition, max(c.most, 1)}, HasOld: !c.noOld, Replicas: parseReplicas(c.replicas)}
			var got []string
			for _, target := range DecideRole(w) {
				got = append(got, target.Row)
				assert.Equal(t, strings.HasPrefix(target.Row, "kept") || target.Row == "waits", target.Old)
			}
			assert.Equal(t, c.want, strings.Join(got, ", "))
		})
	}
}

// TestRolloutOfARoleEndsAndKeepsReplicasReady plays rollouts in which replicas fail and get lost.
func TestRolloutOfARoleEndsAndKeepsReplicasReady(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := &RoleWorld{Strategy: Strategy{r.IntN(3), 1 + r.IntN(2)}, HasOld: true, Replicas: parseReplicas(strings.Repeat("old ", 1+r.IntN(6)))}
		faults := r.IntN(6)
		for range 100 {
			before := w.unready()
			for n, target := range DecideRole(w) {
				p := &w.Replicas[n]
				if outdated := target.Old && (!p.IsThere || p.Outdated); !p.IsThere || p.Outdated != outdated {
					*p = Replica{IsThere: true, Outdated: outdated}
				}
			}
			require.LessOrEqual(t, w.unready(), max(before, w.MaxUnavailable), fmt.Sprintf("seed %d", seed))
			n := r.IntN(len(w.Replicas))
			if faults > 0 && r.IntN(4) == 0 {
				faults--
				w.Replicas[n].Ready = false
				if r.IntN(2) == 0 {
					w.Replicas[n] = Replica{}
				}
				continue
			}
			w.Replicas[n].Ready = w.Replicas[n].IsThere
		}
		for n, p := range w.Replicas {
			require.Equal(t, n < w.Partition, p.Outdated, "seed %d: replica %d", seed, n)
		}
	}
}

func TestTableOfRolesHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## Rollout by roles\n")
	var written, coded []string
	for _, line := range regexp.MustCompile(`(?m)^\| (\S[^|]*) \|.*\|$`).FindAllStringSubmatch(strings.Split(section, "\n## ")[0], -1) {
		if line[1] != "row" {
			written = append(written, line[1])
		}
	}
	for _, r := range roleRows {
		coded = append(coded, r.name)
	}
	assert.Equal(t, coded, written)
}
