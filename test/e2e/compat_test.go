package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// isSleeping asks as the llm-d controller does, for which a 200 is readiness.
func isSleeping(t *testing.T, i launcherapi.Instance) (status int, asleep bool) {
	t.Helper()
	a := call(t, "GET", publicURL(i, "/is_sleeping"), nil)
	if a.Status != 200 {
		return a.Status, false
	}
	var v struct {
		IsSleeping *bool `json:"is_sleeping"`
	}
	a.Into(t, &v)
	require.NotNil(t, v.IsSleeping)
	return a.Status, *v.IsSleeping
}

func TestWhetherAnInstanceSleepsIsNotSaidBeforeItsEngineServes(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	never := n.Create("never", Spec("never", On(1), "--sim-load-time", "1h"))
	status, _ := isSleeping(t, never)
	assert.Equal(t, 503, status)
	a := n.Create("a", Spec("a", On(0), "--sim-load-time", "500ms"))
	n.Eventually("it says so", func() bool {
		status, asleep := isSleeping(t, a)
		assert.False(t, asleep)
		return status == 200
	})
	assert.Equal(t, "awake", n.Get("a").State)
	n.Ask(n.Get("a"), "hello")
}

func TestAnInstanceThatWakesIsStillSaidToSleep(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	a := n.Awake("a", On(0), "--sim-hang-at-wake", "1")
	n.Sleep("a", 1)
	go func() { _, _ = tryCall(t.Context(), "POST", publicURL(a, "/wake_up"), nil) }()
	n.Await("a", "waking")
	status, asleep := isSleeping(t, a)
	assert.Equal(t, 200, status)
	assert.True(t, asleep)
	n.Delete("a")
}

func TestASleepAtTheEnginesPortCutsWhatIsInFlightUnlessAskedToWait(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	a := n.Awake("a", On(0), "--sim-token-time", "20ms")
	for mode, ends := range map[string]bool{"": false, "?mode=abort": false, "?mode=wait": true, "?level=1&mode=keep": true} {
		wait := stream(t, a, 100)
		assert.Equal(t, 200, call(t, "POST", publicURL(a, "/sleep"+mode), nil).Status)
		assert.Equal(t, "sleeping", n.Get("a").State)
		_, whole := wait()
		assert.Equal(t, ends, whole, mode)
		assert.Equal(t, 200, call(t, "POST", publicURL(a, "/wake_up"), nil).Status)
	}
}

func TestASleepAtTheEnginesPortIsAnsweredBeforeTheControllerGivesUp(t *testing.T) {
	t.Parallel()
	const givesUp = 30 * time.Second
	n := NewNode(t, "--llm-d-compat")
	a := n.Awake("a", On(0), "--sim-hang-at-sleep", "1")
	began := time.Now()
	got := call(t, "POST", publicURL(a, "/sleep"), nil)
	assert.Less(t, time.Since(began), givesUp)
	assert.Equal(t, 504, got.Status, "%s", got.Body)
	assert.NotEmpty(t, got.Header.Get("Retry-After"))
	assert.Equal(t, "falling_asleep", n.Get("a").State, "it goes on")
	n.Delete("a")
}

func TestAVerbAtTheEnginesPortThatTheStateRefusesIsAConflict(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	starting := n.Create("starting", Spec("starting", On(1), "--sim-load-time", "1h"))
	assert.Equal(t, 409, call(t, "POST", publicURL(starting, "/sleep"), nil).Status)
	a := n.Awake("a", On(0))
	assert.Equal(t, 200, call(t, "POST", publicURL(a, "/sleep"), nil).Status)
	n.Awake("b", On(0))
	got := call(t, "POST", publicURL(a, "/wake_up"), nil)
	assert.Equal(t, 409, got.Status, "%s", got.Body)
	assert.Contains(t, string(got.Body), "b", "the answer names the one that holds the GPU")
}

func TestWithTheCompatibilityFlagEnvVarsShowTheDevicesOfTheEngine(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	env := func(i launcherapi.Instance) map[string]launcherapi.EnvValue { return i.EnvVars }
	want := map[string]launcherapi.EnvValue{"TESTVAR": {Value: "val"}, "CUDA_VISIBLE_DEVICES": {Value: "1"}}
	spec := Spec("a", On(1))
	spec["env_vars"] = map[string]any{"TESTVAR": "val", "CUDA_VISIBLE_DEVICES": "7"}
	assert.Equal(t, want, env(n.Create("a", spec)))
	assert.Equal(t, want, env(n.Await("a", "awake")))
	n.Kill9()
	n.Start()
	assert.Equal(t, want, env(n.Get("a")))
	assert.Equal(t, map[string]launcherapi.EnvValue{"CUDA_VISIBLE_DEVICES": {Value: "0"}}, env(n.Awake("b", On(0))))
	assert.Empty(t, env(n.Create("none", Spec("none", nil))))
}

func TestWebPagesOfOthersDoNotPutAnInstanceToSleep(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--llm-d-compat")
	a := n.Awake("a", On(0))
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
		assert.Equal(t, 403, call(t, "POST", publicURL(a, "/sleep"), nil, header...).Status)
	}
	for path, method := range map[string]string{"/sleep": "POST", "/wake_up": "POST", "/is_sleeping": "GET"} {
		req, err := http.NewRequestWithContext(t.Context(), method, publicURL(a, path), nil)
		require.NoError(t, err)
		req.Host = fmt.Sprintf("rebound.example:%d", a.Port)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, 403, resp.StatusCode, path)
	}
	assert.Equal(t, "awake", n.Get("a").State)
}
