package subgroups

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
)

// TestSubgroupsOfAllSizesAgree looks at each policy that Validate accepts, for groups of up to 16
// Pods, with different Pods that ask for TPUs.
func TestSubgroupsOfAllSizesAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 31))
	accepted := 0
	for size := 1; size <= 16; size++ {
		for s := range size + 2 {
			for _, kind := range []Type{"", LeaderWorker, LeaderExcluded} {
				policy := &Policy{Size: s, Type: kind}
				valid := s >= 1 && s <= size && ((size-1)%s == 0 || kind != LeaderExcluded && size%s == 0)
				require.Equal(t, valid, len(Validate(policy, Topology{}, Role{"r", size})) == 0, "size %d, %+v", size, *policy)
				if !valid {
					continue
				}
				accepted++
				for _, asks := range masks(size, random) {
					checkGroup(t, groupOf(size, asks, policy))
				}
			}
		}
	}
	require.Greater(t, accepted, 100)
}

// masks returns which Pods ask, as bits: all combinations for a small group, else some.
func masks(size int, random *rand.Rand) (all []uint) {
	if size <= 5 {
		for mask := range uint(1) << size {
			all = append(all, mask)
		}
		return all
	}
	everyone := uint(1)<<size - 1
	all = []uint{0, 1, everyone, everyone &^ 1}
	for range 6 {
		all = append(all, random.UintN(everyone+1))
	}
	return all
}

func groupOf(size int, asks uint, policy *Policy) *Group {
	g := group(size, cpu, policy)
	for w := range g.Pods {
		g.Pods[w] = asking(cpu)
		if asks>>w&1 == 1 {
			g.Pods[w] = asking(podmeta.ResourceTPU)
		}
	}
	return g
}

// checkGroup puts the Pods into subgroups by their labels alone, and compares the environments
// with that.
func checkGroup(t *testing.T, g *Group) {
	t.Helper()
	about := func() string {
		asking := ""
		for w := range g.Pods {
			if AsksForAccelerators(g.Pods[w]) {
				asking += fmt.Sprint(w, " ")
			}
		}
		return fmt.Sprintf("%d Pods, policy %+v, asking: %s", len(g.Pods), *g.Policy, asking)
	}
	must := func(ok bool, what string, args ...any) {
		if !ok {
			require.FailNow(t, fmt.Sprintf(what, args...), about())
		}
	}
	members, order := map[string][]int{}, []string{} // by key
	for w := range g.Pods {
		labels := g.Labels(w)
		key, ok := labels[podmeta.LabelSubgroupKey]
		must(ok == (w > 0 || g.Policy.Type != LeaderExcluded), "Pod %d has labels %v", w, labels)
		if !ok {
			continue
		}
		if members[key] == nil {
			order = append(order, key)
		}
		must(labels[podmeta.LabelSubgroupIndex] == fmt.Sprint(len(order)-1), "Pod %d has labels %v, and there are %d subgroups so far", w, labels, len(order))
		must(key == Key(g.Entry, len(order)-1) && key == order[len(order)-1], "Pod %d has key %s", w, key)
		members[key] = append(members[key], w)
	}
	for n, key := range order {
		most := g.Policy.Size
		if n == 0 && members[key][0] == 0 {
			most++
		}
		must(len(members[key]) <= most, "members %v of subgroup %d", members[key], n)
		var want []string
		for _, w := range members[key] {
			if tpuContainer(g.Pods[w]) != nil {
				want = append(want, host(w))
			}
		}
		id := 0
		for _, w := range members[key] {
			env := values(g.TPUEnv(w, host))
			if tpuContainer(g.Pods[w]) == nil {
				must(len(env) == 0, "Pod %d asks for nothing and has %v", w, env)
				continue
			}
			must(env[podmeta.EnvTPUWorkerHostnames] == strings.Join(want, ","), "Pod %d has %v", w, env)
			must(env[podmeta.EnvTPUWorkerID] == fmt.Sprint(id), "Pod %d has %v", w, env)
			id++
		}
	}
	if g.Policy.Type == LeaderExcluded {
		must(len(g.TPUEnv(0, host)) == 0, "the entry has %v", g.TPUEnv(0, host))
	}
}
