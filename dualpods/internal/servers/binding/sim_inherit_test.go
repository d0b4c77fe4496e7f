package binding

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
)

// podsOf is what the API server itself says.
func (inc *incarnation) podsOf(ctx context.Context, node string) (pods []corev1.Pod, err error) {
	err = inc.call(ctx, "api", func() error {
		a := inc.s.api
		if a.down {
			return errors.New("connection refused")
		}
		for _, name := range sortedKeys(a.pods) {
			if pod := a.pods[name]; pod.Spec.NodeName == node {
				pods = append(pods, *pod.DeepCopy())
			}
		}
		return nil
	})
	inc.s.locked(func() { inc.faults++ }) // the pass may leave all as it is
	return pods, err
}

// happenToTheNext makes it hard for the next controller process.
func (s *sim) happenToTheNext(e simEvent) {
	switch e.what {
	case "fall behind": // its cache, by so many milliseconds
		s.api.behind = time.Duration(e.arg) * time.Millisecond
		s.api.standBy()
	case "wake unheard": // while no controller runs, on a launcher that the next one hears late
		if one, ok := pick(s.instances(launcher.Sleeping), e.arg); ok {
			l, _ := one()
			s.inc.kill()
			s.happenToEngine(simEvent{what: "wake by hand", arg: e.arg})
			s.after(500*time.Millisecond, func() { s.happenToLauncher(simEvent{what: "restart launcher", arg: 2400}, l, 0) })
		}
	}
}

func (a *simAPI) newCache(inc *incarnation) *simCache {
	c := a.standby
	if c == nil {
		c = a.copied()
	}
	c.inc, a.caches = inc, []*simCache{c}
	if a.behind > 0 {
		a.standBy()
	}
	return c
}

func (a *simAPI) copied() *simCache {
	pods := map[string]*corev1.Pod{}
	for name, pod := range a.pods {
		pods[name] = a.cached(pod)
	}
	return &simCache{pods: pods, nodes: maps.Clone(a.nodes), configs: maps.Clone(a.configs), last: map[string]time.Time{}, heard: map[string]time.Time{}}
}

// standBy has the cache of the next controller process lag behind.
func (a *simAPI) standBy() {
	a.standby = a.copied()
	a.caches = append(a.caches, a.standby)
}

// several runs a script with some seeds, each of which draws other times.
func several(t *testing.T, script []simEvent) {
	t.Helper()
	for seed := range uint64(12) {
		out := simulate(t, seed, script, decide.Tables, false)
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

func TestWhatRunsOnANodeThatComesBackIsLeftToARequesterThatDoesNotAnswer(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "create"},
		{at: 20 * time.Second, what: "hang program", arg: 8001},
		{at: 21 * time.Second, what: "node comes back", arg: 3000},
	})
}

// wokenUnheard is of a model that is awake, and of which the controller has not heard.
var wokenUnheard = []simEvent{
	{at: 3 * time.Second, what: "create on demand", arg: 3}, // on the first GPU, with a launcher of its own
	{at: 20 * time.Second, what: "delete"},
	{at: 30 * time.Second, what: "wake unheard"},
	{at: 31500 * time.Millisecond, what: "create", arg: 3 << 2}, // by another launcher, on the same GPU
}

func TestAControllerActsOnNothingThatIsOlderThanTheLastWriteOfTheOneBeforeIt(t *testing.T) {
	for name, script := range map[string][]simEvent{
		"a requester that came to be served": {
			{at: 2 * time.Second, what: "fall behind", arg: 12_000},
			{at: 3 * time.Second, what: "create"},
			{at: 12 * time.Second, what: "kill controller"},
			{at: 12*time.Second + time.Millisecond, what: "touch"},
		},
		"one that came in the place of another": {
			{at: 2 * time.Second, what: "create"},
			{at: 14 * time.Second, what: "fall behind", arg: 15_000},
			{at: 15 * time.Second, what: "force"},
			{at: 16 * time.Second, what: "create", arg: 1},
			{at: 28 * time.Second, what: "kill controller"},
			{at: 28*time.Second + time.Millisecond, what: "touch"},
		},
	} {
		t.Run(name, func(t *testing.T) { several(t, script) })
	}
}

func TestASwapThatComesToItsLauncherAfterItWasCalledOffNeverHasItsTurn(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "late swap"},
		{at: 9 * time.Second, what: "hold GPU", arg: 15000},
	})
}

func TestASwapThatComesToItsLauncherAfterItWasCalledOffIsCalledOffAgain(t *testing.T) {
	several(t, []simEvent{
		{at: 3 * time.Second, what: "late swap"}, // it comes ten seconds late, to a GPU that is not free
		{at: 9 * time.Second, what: "hold GPU", arg: 8000},
		{at: 13600 * time.Millisecond, what: "restart launcher", arg: 1000}, // of whose end nobody tells
	})
}
