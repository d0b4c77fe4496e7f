package e2e

import (
	"fmt"
	"os"
	"path/filepath"
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

// commands runs a command of the client to its end.
func (n *Node) commands(args ...string) (out, errs string, code int) {
	n.t.Helper()
	c := n.launcher(args...)
	code = n.ends(c)
	return c.out.String(), c.err.String(), code
}

// The other node compiles nothing, although its folders are elsewhere.
func TestWhatIsCompiledIsCarriedToAnotherNodeOfItsKindAndToNoOther(t *testing.T) {
	t.Parallel()
	from, to := NewNode(t), NewNode(t)
	from.Create("a", cold(0, "1ms"))
	compiled, _ := from.compilations(from.Await("a", "awake"))
	require.Equal(t, 1, compiled)
	key, before := from.compiled().Key, to.compiled()
	require.Equal(t, key, before.Key)
	file := filepath.Join(t.TempDir(), "compiled.tar")
	_, errs, code := from.commands("compiled", "export", "-f", file)
	require.Equal(t, 0, code, errs)

	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	cut := to.Call("PUT", "/v2/compile-caches/"+key, whole[:700])
	require.Equal(t, 422, cut.Status, "%s", cut.Body)
	assert.Equal(t, before.Starts, to.compiled().Starts, "nothing of it is there")

	_, errs, code = to.commands("compiled", "import", "-f", file)
	require.Equal(t, 0, code, errs)
	to.Create("a", cold(0, "1h"))
	_, found := to.compilations(to.Await("a", "awake"))
	assert.Equal(t, 1, found)

	program, err := os.ReadFile(bin.enginesim)
	require.NoError(t, err)
	elsewhere := filepath.Join(t.TempDir(), "vllm")
	require.NoError(t, os.WriteFile(elsewhere, program, 0o755))
	other := NewNode(t, "--vllm", elsewhere)
	_, errs, code = other.commands("compiled", "import", "-f", file)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "the compile cache is of another kind")

	out, _, _ := to.commands("compiled")
	assert.Contains(t, out, key)
	_, errs, code = to.commands("compiled", "rm", key)
	require.Equal(t, 0, code, errs)
	assert.Zero(t, to.compiled().Starts)
}

// Whoever may not have engines started may not say what engines run.
func TestACompileCacheIsTakenFromTrustedCallersAlone(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("sesame"), 0o600))
	n := NewNode(t, "--token-file", token)
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		a := call(t, method, n.URL+"/v2/compile-caches/"+strings.Repeat("0", 32), []byte("x"))
		assert.Equal(t, 401, a.Status, method)
	}
}

func TestWithoutACompileCacheEnginesKeepWhatTheyCompileThemselves(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--compile-cache", "off")
	i := n.Awake("a", On(0))
	assert.Equal(t, 404, n.Call("GET", "/v2/compile-caches", nil).Status)
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", i.PID))
	require.NoError(t, err)
	assert.NotContains(t, string(env), n.State+"/compiled")
}
