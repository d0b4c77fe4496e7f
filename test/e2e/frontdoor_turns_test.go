package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/enginesim/recorder"
)

// These tests show how models take turns on GPUs, with many requests at once.

// hammered is what clients saw that asked for models all the time.
type hammered struct {
	mu       sync.Mutex
	answers  map[string]int
	failures []string
	longest  time.Duration // that a request took
}

func (h *hammered) add(model string, status int, took time.Duration, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, took)
	switch status {
	case 0: // the test is over
	case 200:
		h.answers[model]++
	default:
		h.failures = append(h.failures, fmt.Sprintf("%s: %d: %s", model, status, why))
	}
}

// another returns a function that reports whether there is an answer since.
func (h *hammered) another() func() bool {
	count := func() (all int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, n := range h.answers {
			all += n
		}
		return all
	}
	before := count()
	return func() bool { return count() > before }
}

// hammer has clients ask for each model all the time: as long as is said, and until enough says
// true. It returns what they saw, and the longest swap.
func hammer(t *testing.T, n *Node, url string, models []string, clients int, long time.Duration, enough func(*hammered) bool) (*hammered, time.Duration) {
	t.Helper()
	until := time.Now().Add(long)
	h := &hammered{answers: map[string]int{}}
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, model := range models {
		for range clients {
			all.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					got, err := tryCall(ctx, "POST", url+"/v1/completions", question(model))
					if err != nil && ctx.Err() == nil {
						h.add(model, -1, time.Since(began), err.Error())
						continue
					}
					h.add(model, got.Status, time.Since(began), string(got.Body))
				}
			})
		}
	}
	slowest := time.Duration(0)
	look := func() {
		for _, s := range n.swaps() {
			if s.Result != nil {
				slowest = max(slowest, time.Duration(s.Result.TotalMS*float64(time.Millisecond)))
			}
		}
	}
	for ; time.Now().Before(until); look() { // the launcher remembers the last swaps alone
		n.Eventually("another answer", h.another())
	}
	n.Eventually("the clients have seen enough", func() bool {
		look()
		return enough(h)
	})
	end()
	all.Wait()
	return h, slowest
}

// stays returns how long each model stayed awake each time that it left again.
func (n *Node) stays() map[string][]time.Duration {
	n.t.Helper()
	events, err := recorder.Events(n.SimFS)
	require.NoError(n.t, err)
	since, stays := map[string]time.Duration{}, map[string][]time.Duration{}
	for _, e := range events {
		if e.Kind == recorder.Asleep {
			stays[e.Model] = append(stays[e.Model], e.At-since[e.Model])
		} else {
			since[e.Model] = e.At
		}
	}
	return stays
}

// assertExplained checks that each time that a model became awake, the front door had begun that
// for requests.
func assertExplained(t *testing.T, n *Node) {
	t.Helper()
	begun, came := map[string]int{}, map[string]int{}
	n.Eventually("the last change is over", func() bool {
		clear(begun)
		clear(came)
		for line := range strings.Lines(n.Log()) {
			if change := changed.FindStringSubmatch(line); change != nil {
				begun[change[1]]++
				require.NotEqual(t, "0", change[2], "nobody asked for it: %s", line)
			}
		}
		events, err := recorder.Events(n.SimFS)
		require.NoError(t, err)
		for _, e := range events {
			if e.Kind != recorder.Asleep {
				came[e.Model]++
			}
		}
		return maps.Equal(begun, came)
	})
}

// changed is a line of the launcher's log, with the model that comes in and how many requests wait
// for it.
var changed = regexp.MustCompile(`"the front door changes what is awake" action=(?:start|wake) .* model=(\S+) .* waiting=(\d+)`)

// Row 17: of two models that are hammered on one GPU, each keeps it for min_residency and not much
// longer, and no request waits longer than the bound of spec/scheduling.md.
func TestHammeredModelsTakeTurns(t *testing.T) {
	t.Parallel()
	const turn, residency = 300 * time.Millisecond, 500 * time.Millisecond
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-token-time", "5ms")+modelText("b", "", "--sim-token-time", "5ms"),
		"--gpus", "simulated:1", "--front-door-turn", turn.String(), "--budgets-min-residency", residency.String())
	for _, model := range []string{"a", "b"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	seen, slowest := hammer(t, n, url, []string{"a", "b"}, 2, 0, func(*hammered) bool {
		stays := n.stays()
		return len(stays["a"]) > 3 && len(stays["b"]) > 3
	})
	assert.Empty(t, seen.failures)
	assert.Positive(t, seen.answers["a"])
	assert.Positive(t, seen.answers["b"])
	for model, stays := range n.stays() {
		for _, stay := range stays {
			assert.GreaterOrEqual(t, stay, residency, model)
		}
	}
	assert.Less(t, seen.longest, 2*(residency+slowest), "the bound of the wait")
	assertExplained(t, n)
}

// Row 17: twenty models on two GPUs are all served, and each swap has its reason. For minutes with
// HOTSEAT_TEST_LONG.
func TestTwentyModelsShareTwoGPUs(t *testing.T) {
	t.Parallel()
	const turn = 100 * time.Millisecond
	text, models := "models:\n", []string{}
	for k := range 20 {
		models = append(models, fmt.Sprintf("m%02d", k))
		text += modelText(models[k], "", "--sim-token-time", "5ms")
	}
	n, url := offer(t, text, "--front-door-turn", turn.String())
	long := time.Duration(0)
	if os.Getenv(envLong) != "" {
		long = 5 * time.Minute
	}
	seen, slowest := hammer(t, n, url, models, 1, long, func(h *hammered) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, model := range models {
			if h.answers[model] < 3 {
				return false
			}
		}
		return true
	})
	assert.Empty(t, seen.failures)
	bound := time.Duration(len(models)) * (turn + slowest)
	assert.Less(t, seen.longest, bound)
	t.Logf("the longest request took %s, the bound is %s", seen.longest, bound)
	assertExplained(t, n)
}

// awakeOn returns which models are awake on which GPU.
func (n *Node) awakeOn() map[string]string {
	n.t.Helper()
	on, all := map[string]string{}, n.instances()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		i := all[id]
		if i.State != "awake" {
			continue
		}
		for _, gpu := range i.GPUUUIDs {
			on[gpu] = strings.TrimSpace(on[gpu] + " " + i.ServedModelNames[0])
		}
	}
	return on
}

// Rows 13, 14 and 16.
func TestModelsGetTheGPUsThatTheScheduleSays(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "")+modelText("b", "")+modelText("c", "", "--sim-tokens", "60", "--sim-token-time", "20ms")+
		"- {name: big, gpus: 2, options: \"big --served-model-name big --tensor-parallel-size 2\"}\n", "--front-door-turn", "200ms")
	for _, model := range []string{"a", "b"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	require.Equal(t, map[string]string{GPU(0): "a", GPU(1): "b"}, n.awakeOn())
	before := n.instances()
	n.Sleep("m-a", 1)
	n.Sleep("m-b", 1)
	require.Equal(t, 200, ask(t, url, "b").Status)
	assert.Equal(t, map[string]string{GPU(1): "b"}, n.awakeOn(), "both GPUs were free, and it slept there")

	require.Equal(t, 200, ask(t, url, "a").Status)
	n.Eventually("b is the one that was used longest ago", func() bool {
		require.Equal(t, 200, ask(t, url, "a").Status)
		last := n.instances()["m-b"].LastUsedAt
		return time.Since(*last) > 2*max(time.Second, time.Duration(n.demand("b").TookMS*float64(time.Millisecond)))
	})
	require.Equal(t, 200, ask(t, url, "c").Status)
	assert.Equal(t, map[string]string{GPU(0): "a", GPU(1): "c"}, n.awakeOn())

	resp, lines := doorStream(t.Context(), t, url, "c")
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, 200, ask(t, url, "b").Status, "it waits where it sleeps")
	all := linesOf(t, lines)
	assert.Equal(t, "data: [DONE]", all[len(all)-1], "the answer in flight ended whole")
	assert.Greater(t, len(all), 60)
	assert.Equal(t, map[string]string{GPU(0): "a", GPU(1): "b"}, n.awakeOn())

	require.Equal(t, 200, ask(t, url, "big").Status)
	assert.Equal(t, map[string]string{GPU(0): "big", GPU(1): "big"}, n.awakeOn())
	for range 2 {
		for _, model := range []string{"b", "a", "big"} {
			require.Equal(t, 200, ask(t, url, model).Status)
		}
	}
	for _, model := range []string{"b", "a"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	assert.Equal(t, map[string]string{GPU(0): "a", GPU(1): "b"}, n.awakeOn())
	for _, id := range []string{"m-a", "m-b"} {
		assert.Equal(t, before[id].PID, n.instances()[id].PID, "it was only ever put to sleep")
	}
}

// Row 14: a pinned model leaves for no other, though it was used longest ago. Row 15: two models
// that fit together are awake on one GPU.
func TestPinnedModelStaysAndModelsThatFitShareAGPU(t *testing.T) {
	t.Parallel()
	half := []string{"--gpu-memory-utilization", "0.45"}
	n, url := offer(t, "models:\n"+modelText("pinned", "pinned: true,")+modelText("x", "", half...)+modelText("y", "", half...)+modelText("whole", ""), "--front-door-turn", "200ms")
	for _, model := range []string{"pinned", "x", "y"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	shared := map[string]string{GPU(0): "pinned", GPU(1): "x y"}
	require.Equal(t, shared, n.awakeOn())
	require.Equal(t, 200, ask(t, url, "whole").Status)
	assert.Equal(t, map[string]string{GPU(0): "pinned", GPU(1): "whole"}, n.awakeOn())
	for _, model := range []string{"x", "y"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	assert.Equal(t, shared, n.awakeOn())
}

// Row 18: a model whose GPU another process has taken moves to a free one. If no GPU has room, the
// request is refused with the numbers, and the launcher tries nothing.
func TestStrangersMemoryIsToldAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", ""))
	require.Equal(t, 200, ask(t, url, "a").Status)
	n.Sleep("m-a", 1)
	first := hold(t, n, 0, 60<<30)
	n.foreign(0, 60<<30)
	require.Equal(t, 200, ask(t, url, "a").Status)
	assert.Equal(t, map[string]string{GPU(1): "a"}, n.awakeOn(), "it moved")
	n.Sleep("m-a", 1)
	second := hold(t, n, 1, 70<<30)
	n.foreign(1, 70<<30)
	done := `hotseat_front_door_transitions_total{kind="start",outcome="done"}`
	before := n.metric(done)
	for range 3 {
		got := ask(t, url, "a")
		assert.Equal(t, 503, got.Status, "%s", got.Body)
		assert.NotEmpty(t, got.Header.Get("Retry-After"))
		message := refusal(t, got).Message
		assert.Contains(t, message, "it needs ")
		assert.Contains(t, message, "other processes than the launcher's use 70.0 GiB of 80.0 GiB")
	}
	assert.Equal(t, before, n.metric(done))
	for _, outcome := range []string{"failed", "done"} {
		assert.Empty(t, n.metric(fmt.Sprintf("hotseat_front_door_transitions_total{kind=%q,outcome=%q}", "wake", outcome)))
	}
	second()
	n.foreign(1, 0)
	assert.Equal(t, 200, ask(t, url, "a").Status)
	first()
}

// foreign waits until the launcher sees so much memory of strangers on a GPU.
func (n *Node) foreign(gpu int, bytes uint64) {
	n.t.Helper()
	n.Eventually("the launcher sees the memory of others", func() bool { return n.gpus().GPUs[gpu].ForeignBytes == bytes })
}

// Row 20: a model of a lower priority waits as long as one of a higher one has requests.
func TestModelOfLowerPriorityPutsNoBusyOneToSleep(t *testing.T) {
	t.Parallel()
	const turn = 200 * time.Millisecond
	n, url := offer(t, "models:\n"+modelText("high", "priority: 5,", "--sim-token-time", "20ms", "--sim-tokens", "1000")+modelText("low", ""),
		"--gpus", "simulated:1", "--front-door-turn", turn.String())
	ctx, end := context.WithCancel(t.Context())
	defer end()
	resp, lines := doorStream(ctx, t, url, "high")
	require.Equal(t, 200, resp.StatusCode)
	since := n.instances()["m-high"].StateSince
	answered := make(chan Answer, 1)
	go func() {
		got, _ := tryCall(t.Context(), "POST", url+"/v1/completions", question("low")) // without an answer the status is 0
		answered <- got
	}()
	var low launcherapi.FrontDoorModel
	n.Eventually("the turn is over, and low waits", func() bool {
		low = n.demand("low")
		return low.Waiting == 1 && time.Since(since) > 5*turn
	})
	assert.Equal(t, "high is in use there, and goes first", low.Why)
	for range 50 { // for a second
		require.True(t, lines.Scan(), "the stream goes on: %v", lines.Err())
	}
	assert.Equal(t, "awake", n.instances()["m-high"].State)
	assert.Equal(t, 1, n.demand("low").Waiting)
	end()
	assert.Equal(t, 200, (<-answered).Status)
	assert.Equal(t, "sleeping", n.instances()["m-high"].State)
}
