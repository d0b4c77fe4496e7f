package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What engines compile when they start: once, kept, and carried to another node.

// cold is an instance of a model that compiles for so long.
func cold(gpu int, compileTime string) map[string]any {
	return Spec("org/cold", On(gpu), "--sim-compile-time", compileTime)
}

// compilations says how often the engine of an instance has compiled, and how often it
// has found what it needed.
func (n *Node) compilations(i launcherapi.Instance) (compiled, found int) {
	n.t.Helper()
	log := string(n.logFile(i))
	return strings.Count(log, "saved AOT compiled function to "), strings.Count(log, "Directly load AOT compilation from path ")
}

// compiled is the cache of a node's own engines.
func (n *Node) compiled() launcherapi.CompileCache {
	n.t.Helper()
	a := n.Call("GET", "/v2/compile-caches", nil)
	require.Equal(n.t, 200, a.Status, "%s", a.Body)
	var list launcherapi.CompileCacheList
	a.Into(n.t, &list)
	require.NotEmpty(n.t, list.Caches)
	require.True(n.t, list.Caches[0].Own)
	return list.Caches[0]
}

func TestOfTwoColdStartsOfOneModelOneCompiles(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--compile-cache", "always")
	n.Create("a", cold(0, "1s"))
	b := n.Create("b", cold(1, "1s"))
	assert.Contains(t, b.Reason, "waiting for what instance a compiles")
	for id, compiles := range map[string]int{"a": 1, "b": 0} {
		i := n.Await(id, "awake")
		compiled, found := n.compilations(i)
		assert.Equal(t, compiles, compiled, id)
		assert.Equal(t, 1-compiles, found, id)
		assert.NotContains(t, i.Reason, "waiting")
	}
	assert.Contains(t, phases(n.Get("b").Timings), "compile_wait")
	own := n.compiled()
	assert.Equal(t, 1, own.Starts)
	assert.Positive(t, own.Bytes)
}

func TestWhoCompilesWhenTheFirstIsKilledAndWhenTheLauncherIs(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--compile-cache", "always")
	n.Create("a", cold(0, "1h"))
	n.Create("b", cold(1, "1ms"))
	n.Delete("a")
	compiled, _ := n.compilations(n.Await("b", "awake"))
	assert.Equal(t, 1, compiled, "a could not")
	n.Delete("b")

	n.Create("c", Spec("org/other", On(0), "--sim-compile-time", "2s"))
	n.Kill9()
	n.Start()
	d := n.Create("d", Spec("org/other", On(1), "--sim-compile-time", "2s"))
	assert.Contains(t, d.Reason, "waiting for what instance c compiles")
	n.Await("c", "awake")
	_, found := n.compilations(n.Await("d", "awake"))
	assert.Equal(t, 1, found)
}

// A swap whose start waits ends when who compiles does, and holds nobody up.
func TestASwapOnAnotherGPUWaitsForWhatIsBeingCompiled(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--compile-cache", "always")
	n.Awake("old", On(1))
	n.Create("a", cold(0, "1s"))
	in := cold(1, "1s")
	in["id"] = "b"
	delete(in, "gpu_uuids")
	result := n.SwapDone(map[string]any{"gpu_uuids": On(1), "in": in})
	assert.Equal(t, "awake", result.In.State)
	compiled, found := n.compilations(n.Get("b"))
	assert.Equal(t, 0, compiled)
	assert.Equal(t, 1, found)
}
