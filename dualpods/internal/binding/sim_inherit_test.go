package binding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// several runs a script with some seeds, each of which draws other times.
func several(t *testing.T, script []simEvent) {
	t.Helper()
	for seed := range uint64(12) {
		out := simulate(t, seed, script, rules, false)
		assert.Empty(t, out.wrong, "seed %d", seed)
	}
}

func TestASwapThatAnEarlierControllerAskedForAndThatWaitsIsCalledOff(t *testing.T) {
	several(t, []simEvent{
		{at: 2 * time.Second, what: "hold GPU", arg: 8000},
		{at: 3 * time.Second, what: "create"}, // its swap waits
		{at: 5 * time.Second, what: "kill controller"},
		{at: 5*time.Second + time.Millisecond, what: "touch"}, // the next call is the last
		{at: 5*time.Second + 30*time.Millisecond, what: "delete"},
	})
}

func TestWhatRunsOnANodeThatComesBackIsPutToRestOnceNobodyIsCarriedToIt(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "create"},
		{at: 20 * time.Second, what: "node comes back", arg: 3000},
	})
}

func TestAControllerHearsEveryLauncherOfTheNodeBeforeItsFirstSwapThere(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "create on demand", arg: 3}, // on the first GPU, with a launcher of its own
		{at: 20 * time.Second, what: "delete"},
		{at: 30 * time.Second, what: "wake unheard"},
		{at: 31500 * time.Millisecond, what: "create", arg: 3 << 2}, // by another launcher, on the same GPU
	})
}
