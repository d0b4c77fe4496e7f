package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// rewrite replaces the configuration file as editors do, by a rename.
func (n *Node) rewrite(text string) {
	n.t.Helper()
	next := n.config + ".new"
	require.NoError(n.t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(n.t, os.Rename(next, n.config))
}

// longQuestion is the body of a request for many tokens.
func longQuestion(model string, tokens int) map[string]any {
	q := question(model)
	q["max_tokens"] = tokens
	return q
}

// instances lists those of the launcher, by id.
func (n *Node) instances() map[string]launcherapi.Instance {
	n.t.Helper()
	var list launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(n.t, &list)
	all := map[string]launcherapi.Instance{}
	for _, i := range list.Instances {
		all[i.InstanceID] = i
	}
	return all
}

// logged waits until the launcher has logged a text.
func (n *Node) logged(text string) {
	n.t.Helper()
	n.Eventually("the log says "+text, func() bool { return strings.Contains(n.Log(), text) })
}

// Row 19: a model with a spillover of 2 gets two requests; the third one goes to the next model.
// A pin goes to its model, and nearest to one that is awake.
func TestSelectorsChooseTheirModel(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-token-time", "100ms")+modelText("b", "")+modelText("c", "")+`selectors:
- {name: spill, strategy: spillover, n: 2, models: [a, b]}
- {name: near, strategy: nearest, models: [c, b]}
- {name: first, strategy: pin, models: [b, a]}
`)
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	long := longQuestion("spill", 1000)
	for range 2 {
		all.Go(func() { _, _ = tryCall(ctx, "POST", url+"/v1/completions", long) }) // ends with the test
	}
	n.Eventually("two requests are answered", func() bool { return n.demand("a").InFlight == 2 })
	assert.Equal(t, "b", answeredBy(t, ask(t, url, "spill")))
	assert.Equal(t, "b", answeredBy(t, ask(t, url, "near")), "c has no engine, and b is awake")
	assert.Equal(t, "b", answeredBy(t, ask(t, url, "first")))
}

// Row 21: a model sleeps, and then ends, after the end of its last answer, and never in use.
func TestIdleModelSleepsAndThenStops(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "sleep_after: 2s, stop_after: 6s,", "--sim-token-time", "100ms"))
	require.Equal(t, 200, call(t, "POST", url+"/v1/completions", longQuestion("a", 40)).Status, "the answer takes longer than sleep_after")
	i := n.Await("m-a", "sleeping")
	require.NotNil(t, i.LastUsedAt)
	assert.GreaterOrEqual(t, i.StateSince.Sub(*i.LastUsedAt).Seconds(), 1.9)
	n.Eventually("the model has ended", func() bool { return len(n.instances()) == 0 })
}

// Row 22: a model that is preloaded is awake after a start without a request, and comes back.
func TestPreloadedModelIsAwakeAfterAStart(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "preload: true,")+modelText("b", "sleep_after: 1s,"), "--gpus", "simulated:1")
	first := n.Eventual("m-a", "awake")
	require.Equal(t, 200, ask(t, url, "b").Status)
	back := n.Eventual("m-a", "awake")
	assert.Equal(t, first.PID, back.PID, "it was woken after b had gone")
	require.Zero(t, n.Stop())
	n.Start()
	n.Eventual("m-a", "awake")
}

// Eventual waits until there is an instance in a state.
func (n *Node) Eventual(id, state string) (i launcherapi.Instance) {
	n.t.Helper()
	n.Eventually(id+" is "+state, func() bool {
		i = n.instances()[id]
		return i.State == state
	})
	return i
}

// Row 23: a model that failed comes back by itself.
func TestModelThatFailedComesBack(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-dead-delay", "10ms")+modelText("b", "restart: never,", "--sim-dead-delay", "10ms"))
	require.Equal(t, 200, ask(t, url, "a").Status)
	require.Equal(t, 200, ask(t, url, "b").Status)
	before := n.instances()
	require.NoError(t, syscall.Kill(before["m-a"].PID, syscall.SIGKILL))
	require.NoError(t, syscall.Kill(before["m-b"].PID, syscall.SIGKILL))
	n.Eventually("a is back", func() bool {
		i := n.instances()["m-a"]
		return i.State == "awake" && i.PID != before["m-a"].PID
	})
	assert.Equal(t, "failed", n.Eventual("m-b", "failed").State)
	assert.Equal(t, 200, ask(t, url, "b").Status, "a request starts it again")
}

// Row 23: a model that has failed five times in a row is held back. The answer to a request, the
// API and the command say so.
func TestModelThatKeepsFailingIsHeldBack(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-oom", "true")+modelText("b", ""))
	first := ask(t, url, "a")
	assert.Equal(t, 502, first.Status)
	assert.NotContains(t, refusal(t, first).Message, "held back")
	assert.Equal(t, 200, ask(t, url, "b").Status, "others are undisturbed")
	b := n.instances()["m-b"]
	var a launcherapi.FrontDoorModel
	n.Eventually("it has failed five times, without a further request", func() bool { a = n.demand("a"); return a.Failures == 5 })
	assert.True(t, a.HeldBack)
	assert.Contains(t, a.Failure, "out of memory")
	assert.Greater(t, time.Until(a.RetryAt), 4*time.Minute)
	starts := n.metric(`hotseat_front_door_transitions_total{kind="start",outcome="failed"}`)
	got := ask(t, url, "a")
	assert.Equal(t, 502, got.Status)
	assert.Contains(t, refusal(t, got).Message, "it is held back, since it has failed 5 times in a row, and is tried again in ")
	var seconds int
	_, err := fmt.Sscan(got.Header.Get("Retry-After"), &seconds)
	require.NoError(t, err)
	assert.Greater(t, seconds, 240)
	out, errs, code := n.commands("front-door", "--server", n.URL)
	require.Zero(t, code, errs)
	assert.Contains(t, out, "held back: failed 5 times in a row, next try in ")
	assert.Equal(t, starts, n.metric(`hotseat_front_door_transitions_total{kind="start",outcome="failed"}`), "the request started nothing")
	assert.Equal(t, b.PID, n.instances()["m-b"].PID)
	n.rewrite("models:\n" + modelText("a", "") + modelText("b", ""))
	n.Eventually("the changed model is tried again at once", func() bool { return !n.demand("a").HeldBack })
	assert.Equal(t, 200, ask(t, url, "a").Status)
}

// Row 24: an engine that answers /health, and no request any more, is replaced.
func TestEngineThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "once")
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-mute-after", "100ms", "--sim-once-file", once), "--hang-timeout", "2s")
	require.Equal(t, 200, ask(t, url, "a").Status)
	before := n.instances()["m-a"].PID
	n.Eventually("it was replaced", func() bool {
		_, _ = tryCall(t.Context(), "POST", url+"/v1/completions", question("a")) // may be cut
		i := n.instances()["m-a"]
		return i.State == "awake" && i.PID != before
	})
}

// Row 24: an engine that ends when it is to fall asleep makes room for the model that waits, whose
// failure it is not.
func TestEngineThatCannotFallAsleepHoldsUpNoOtherModel(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-crash-at-sleep", "exit:1")+modelText("b", ""), "--gpus", "simulated:1")
	require.Equal(t, 200, ask(t, url, "a").Status)
	got := ask(t, url, "b")
	require.Equal(t, 200, got.Status, "%s", got.Body)
	assert.Zero(t, n.demand("b").Failures)
	assert.Equal(t, "failed", n.demand("a").State)
	assert.Equal(t, 200, ask(t, url, "a").Status)
}

// Row 25: a comment or another order changes nothing; a model that changed ends when nobody uses
// it; a model that is gone is stopped; a file with mistakes changes nothing, and its place is told.
func TestReloadTouchesWhatChangedAlone(t *testing.T) {
	t.Parallel()
	a, b, c := modelText("a", ""), modelText("b", "", "--sim-token-time", "100ms"), modelText("c", "")
	n, url := offer(t, "models:\n"+a+b+c, "--gpus", "simulated:3")
	for _, model := range []string{"a", "b", "c"} {
		require.Equal(t, 200, ask(t, url, model).Status)
	}
	before := n.instances()
	n.rewrite("# The same models, written in another way.\nmodels:\n" + c + "- name: a\n  gpus: 1\n  args: [a, --served-model-name, a]\n" + b)
	n.Signal(syscall.SIGHUP)
	n.rewrite("models:\n" + a + "- name: b\n  optoins: x\n")
	n.logged("launcher.yaml:4:3: ")
	n.logged("stay as they were")
	for id, i := range n.instances() {
		assert.Equal(t, before[id].PID, i.PID, id)
		assert.Equal(t, "awake", i.State, id)
	}
	long := longQuestion("b", 1000)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = tryCall(ctx, "POST", url+"/v1/completions", long) // ends with the test
	}()
	n.Eventually("the answer runs", func() bool { return n.demand("b").InFlight == 1 })
	n.rewrite("models:\n" + a + modelText("b", "", "--max-model-len", "4000")) // without a signal
	n.Eventually("c is stopped", func() bool { return n.instances()["m-c"].InstanceID == "" })
	assert.Equal(t, before["m-b"].PID, n.instances()["m-b"].PID, "it is in use")
	assert.Equal(t, 404, ask(t, url, "c").Status)
	end()
	<-over
	n.Eventually("b has ended", func() bool { return n.instances()["m-b"].InstanceID == "" })
	require.Equal(t, 200, ask(t, url, "b").Status)
	changed := n.instances()["m-b"].Options
	require.NotNil(t, changed)
	assert.Contains(t, *changed, "4000")
	assert.Equal(t, before["m-a"].PID, n.instances()["m-a"].PID)
}

// Row 25: a model that is removed while it starts refuses the requests that wait, and gives its GPU to
// others without a wait for the end of its start.
func TestModelThatIsRemovedWhileItStartsGoesAtOnce(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-hang-at-load", "1")+modelText("b", ""), "--gpus", "simulated:1")
	got := make(chan Answer, 1)
	go func() {
		a, err := tryCall(t.Context(), "POST", url+"/v1/completions", question("a"))
		assert.NoError(t, err)
		got <- a
	}()
	n.Eventually("it starts", func() bool { return n.instances()["m-a"].State == "starting" && n.demand("a").Waiting == 1 })
	n.rewrite("models:\n" + modelText("b", ""))
	refused := <-got
	assert.Equal(t, 404, refused.Status)
	assert.Empty(t, refused.Header.Get("Retry-After"))
	assert.Contains(t, refusal(t, refused).Message, "it was removed while the request waited")
	assert.Equal(t, 200, ask(t, url, "b").Status)
	assert.Empty(t, n.instances()["m-a"].InstanceID)
}

// Row 26: a profile is switched at run time, and kept over a kill of the launcher.
func TestProfileIsKeptOverAKill(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "")+modelText("b", "")+`selectors:
- {name: any, strategy: pin, models: [a]}
profiles:
- {name: night, pins: {any: b, a: null}}
`)
	assert.Equal(t, "a", answeredBy(t, ask(t, url, "any")))
	wrong := n.Call("PUT", "/v2/front-door/profile", map[string]any{"profile": "nihgt"})
	assert.Equal(t, http.StatusUnprocessableEntity, wrong.Status)
	assert.Contains(t, wrong.Problem(t).Detail+string(wrong.Body), "night")
	require.Equal(t, 200, n.Call("PUT", "/v2/front-door/profile", map[string]any{"profile": "night"}).Status)
	for range 2 {
		assert.Equal(t, "b", answeredBy(t, ask(t, url, "any")))
		off := ask(t, url, "a")
		assert.Equal(t, 404, off.Status)
		assert.Contains(t, refusal(t, off).Message, "turned off by the profile night")
		n.Kill9()
		n.Start()
	}
	require.Equal(t, 200, n.Call("PUT", "/v2/front-door/profile", map[string]any{"profile": ""}).Status)
	assert.Equal(t, "a", answeredBy(t, ask(t, url, "any")))
}
