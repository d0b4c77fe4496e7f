package balance_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/balance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pods(n, weight int) (all []balance.Endpoint) {
	for i := range n {
		all = append(all, balance.Endpoint{Name: fmt.Sprintf("llama-gpu-%d", i), Weight: weight})
	}
	return all
}

// 60 clients ask again as soon as they are answered, and each answer takes equally long.
func TestLoadFollowsTheWeights(t *testing.T) {
	of := []balance.Endpoint{{Name: "a", Weight: 500}, {Name: "b", Weight: 100}}
	answered := map[string]int{}
	var open []int
	for range 10_000 {
		if len(open) == 60 {
			of[open[0]].Load--
			open = open[1:]
		}
		at := balance.LeastLoad(of)
		of[at].Load++
		answered[of[at].Name]++
		open = append(open, at)
	}
	assert.InEpsilon(t, 5, float64(answered["a"])/float64(answered["b"]), 0.05)
}

func TestLeastLoadOfEqualOnesIsTheFirstByName(t *testing.T) {
	assert.Equal(t, 1, balance.LeastLoad([]balance.Endpoint{{Name: "b", Weight: 1}, {Name: "a", Weight: 1}}))
}

func TestSamePrefixGoesToTheSamePod(t *testing.T) {
	of := pods(5, 100)
	ring := balance.NewRing(of, 256)
	// Another front door lists the Pods in another order.
	shuffled := pods(5, 100)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	other := balance.NewRing(shuffled, 256)
	counts := map[string]int{}
	for i := range 10_000 {
		key := fmt.Sprintf("key %d", i)
		chosen := of[ring.Choose(key, of, 125)].Name
		require.Equal(t, chosen, shuffled[other.Choose(key, shuffled, 125)].Name)
		counts[chosen]++
	}
	for name, n := range counts {
		assert.InDelta(t, 2000, n, 500, name)
	}
}

func TestJoiningPodMovesFewKeys(t *testing.T) {
	before, after := pods(4, 100), pods(5, 100)
	old, now := balance.NewRing(before, 256), balance.NewRing(after, 256)
	moved := 0
	for i := range 10_000 {
		key := fmt.Sprintf("key %d", i)
		was, is := before[old.Choose(key, before, 125)].Name, after[now.Choose(key, after, 125)].Name
		if was != is {
			moved++
			assert.Equal(t, "llama-gpu-4", is, "a key moves to the Pod that joined, and to no other")
		}
	}
	assert.LessOrEqual(t, moved, 10_000*3/2/5)
}

func TestHotPrefixStaysBelowTheBound(t *testing.T) {
	of := []balance.Endpoint{{Name: "a", Weight: 100}, {Name: "b", Weight: 100}, {Name: "c", Weight: 200}, {Name: "d", Weight: 400}}
	ring := balance.NewRing(of, 256)
	for total := 1; total <= 2000; total++ {
		of[ring.Choose("the same beginning", of, 125)].Load++
		for _, e := range of {
			mean := float64(total) * float64(e.Weight) / 800
			require.LessOrEqual(t, float64(e.Load), mean*1.25+1, "%s of %d", e.Name, total)
		}
	}
}

func TestPodsThatAreOutAreNotChosen(t *testing.T) {
	all := pods(3, 100)
	ring := balance.NewRing(all, 256)
	for i := range 100 {
		key := fmt.Sprint(i)
		first := all[ring.Choose(key, all, 125)].Name
		var rest []balance.Endpoint
		for _, e := range all {
			if e.Name != first {
				rest = append(rest, e)
			}
		}
		assert.NotEqual(t, first, rest[ring.Choose(key, rest, 125)].Name)
	}
}

func TestPrefixCountsCharacters(t *testing.T) {
	assert.Equal(t, "größe", balance.Prefix("größenwahn", 5))
	assert.Equal(t, "ab", balance.Prefix("ab", 5))
	assert.Empty(t, balance.Prefix("ab", 0))
}
