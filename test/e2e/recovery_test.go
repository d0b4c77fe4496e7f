package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What the launcher takes over when its files are damaged or lost, and what it
// knows of its engines then.

// written is the file of the state folder in which an instance is written down.
func (n *Node) written(id string) string { return filepath.Join(n.State, "instances", id+".json") }

// damage spoils what is written of an instance.
func (n *Node) damage(id string) {
	n.t.Helper()
	data, err := os.ReadFile(n.written(id))
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(n.written(id), data[:len(data)/2], 0o600))
}

// forgetAll removes what the launcher has written of its instances.
func (n *Node) forgetAll(what ...string) {
	n.t.Helper()
	for _, name := range what {
		require.NoError(n.t, os.RemoveAll(filepath.Join(n.State, name)))
	}
}

func TestADamagedFileCostsWhatItSaidAndUndoesNoOldSwapAndHarmsNoEngine(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string][]string{
		"of the one that left":      {"a"},
		"of the one that came":      {"b"},
		"of both":                   {"a", "b"},
		"of a swap, and of the one": {"b", "../swaps/unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			b := n.SwapDone(toNew("b", On(0))).In
			n.Sleep("b", 1)
			n.Wake("a") // a swap that is taken up now would not find b awake, and end it
			n.Kill9()
			require.NoError(t, os.WriteFile(n.written("../swaps/unreadable"), []byte("neither this nor that"), 0o600))
			for _, id := range damaged {
				n.damage(id)
			}
			n.Start()
			all := n.settled()
			require.Len(t, all, 2)
			assert.Equal(t, "awake", all["a"].State)
			assert.Equal(t, a.PID, all["a"].PID)
			assert.Equal(t, "sleeping", all["b"].State)
			assert.Equal(t, b.PID, all["b"].PID)
			n.Ask(all["a"], "hello")
			n.SwapDone(to("b"))
			n.Ask(n.Get("b"), "hello")
			kept, err := filepath.Glob(filepath.Join(n.State, "instances", "*.broken"))
			require.NoError(t, err)
			assert.Len(t, kept, len(slices.DeleteFunc(damaged, func(id string) bool { return len(id) > 1 })), "a damaged file is kept aside")
			assert.FileExists(t, filepath.Join(n.State, "swaps", "unreadable.broken"))
		})
	}
}

func TestDamagedRecordKeepsThePublicPort(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	port := freePort(t)
	a := n.Awake("a", On(0), "--port", port)
	n.Kill9()
	n.damage("a")
	n.Start()
	found := n.settled()["a"]
	assert.Equal(t, a.PID, found.PID)
	assert.Equal(t, port, fmt.Sprint(found.Port))
	n.Ask(found, "hello")
}

func TestASleeperOfLevel2AnswersAsBeforeWhateverIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(n *Node){
		"its file":         func(n *Node) { n.forgetAll("instances") },
		"half of its file": func(n *Node) { n.damage("a") },
		"what became of it last": func(n *Node) {
			require.NoError(n.t, os.Rename(n.written("a"), strings.Replace(n.written("a"), ".json", ".doubted", 1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a := n.Awake("a", On(0))
			says := n.Ask(a, "who are you?")
			n.Sleep("a", 2)
			n.Kill9()
			lose(n)
			n.Start()
			require.Equal(t, "sleeping", n.settled()["a"].State)
			n.Wake("a")
			assert.Equal(t, says, n.Ask(n.Get("a"), "who are you?"), "its weights were loaded again")
		})
	}
}

func TestALivingEngineOfWhichNothingIsWrittenIsAdopted(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(1), "--api-key", "sesame-open", "--gpu-memory-utilization", "0.5")
	b := n.Awake("b", On(0))
	n.Sleep("b", 1)
	n.Kill9()
	n.forgetAll("instances")
	n.Start()
	all := n.settled()
	require.Len(t, all, 2)
	assert.Equal(t, "awake", all["a"].State)
	assert.Equal(t, a.PID, all["a"].PID)
	assert.Equal(t, On(1), all["a"].GPUUUIDs)
	assert.Equal(t, []string{"a"}, all["a"].ServedModelNames)
	assert.Equal(t, a.LogName, all["a"].LogName)
	assert.Contains(t, all["a"].Reason, "without a record")
	shown, err := json.Marshal(all)
	require.NoError(t, err)
	assert.NotContains(t, string(shown), "sesame-open")
	assert.Equal(t, b.PID, all["b"].PID)
	assert.Equal(t, "sleeping", all["b"].State)
	n.Wake("b")
	n.Ask(n.Get("b"), "hello")
	refused := n.Call("PUT", "/v2/vllm/instances/c", Spec("c", On(1)))
	assert.Equal(t, 409, refused.Status, "its memory is counted: %s", refused.Body)

	n.Kill9()
	n.Start()
	assert.Equal(t, a.PID, n.settled()["a"].PID, "it is written down from now on")
	n.Delete("a")
	n.Eventually("a is gone", func() bool { return cmdline(a.PID) == "" })
}

func TestAForkedEngineOfWhichNothingIsWrittenIsAdopted(t *testing.T) {
	t.Parallel()
	n := newForkNode(t)
	n.Start()
	n.preloader()
	a := n.run("a", launcherapi.StartFork)
	n.Kill9()
	n.forgetAll("instances")
	n.Start()
	now := n.settled()["a"]
	assert.Equal(t, "awake", now.State, now.Reason)
	assert.Equal(t, a.PID, now.PID)
	assert.Equal(t, a.ServedModelNames, now.ServedModelNames)
	n.Delete("a")
}

func TestASleepThatWasDoneWhenTheLauncherDiedIsOverAtOnce(t *testing.T) {
	t.Parallel()
	n := NewNode(t, "--memory-timeout", "10m")
	a := n.Awake("a", On(0))
	n.crashAt("sleep.done")
	n.later("POST", "/v2/vllm/instances/a/sleep", nil)
	n.comeBack()
	all := n.settled()
	assert.Equal(t, "sleeping", all["a"].State, "it does not wait for memory that has come back before")
	assert.Equal(t, a.PID, all["a"].PID)
	n.Wake("a")
	n.Ask(n.Get("a"), "hello")
}

func TestTheCanaryHasTheKeyOfAnInstanceAfterARestart(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]map[string]any{
		"of a flag": Spec("a", On(0), "--api-key", "sesame-open"),
		"of a variable": {
			"args": []string{"a", "--served-model-name", "a"}, "gpu_uuids": On(0), "env_vars": map[string]string{"VLLM_API_KEY": "sesame-open"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			n.Create("a", spec)
			a := n.Await("a", "awake")
			n.SwapDone(toNew("b", On(0)))
			n.Kill9()
			n.Start()
			body := to("a")
			body["canary"] = true
			assert.Contains(t, phases(n.SwapDone(body).Phases), "canary")
			assert.Equal(t, a.PID, n.Get("a").PID)
			n.Stop()
			n.holdsNot("sesame-open")
		})
	}
}

// holdsNot checks that a secret is in no file of the state folder.
func (n *Node) holdsNot(secret string) {
	n.t.Helper()
	require.NoError(n.t, filepath.WalkDir(n.State, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(n.State, "logs")) {
			return err
		}
		data, err := os.ReadFile(path)
		assert.NotContains(n.t, string(data), secret, path)
		return err
	}))
	assert.NotContains(n.t, n.Log(), secret)
}

func TestNoRevisionIsGivenTwiceWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	n := nodeOnDisks(t, "size=256k", "size=4m")
	a := n.Awake("a", On(0))
	makeRoom := fill(t, n.State)
	defer makeRoom()
	n.brimful(a)
	n.Wake("a") // nothing of this is written
	n.Sleep("a", 1)
	given := n.list().Revision
	n.Kill9()
	n.Start()
	assert.Greater(t, n.Get("a").Revision, given)
	assert.Equal(t, 410, n.Call("GET", instances+"/watch?since="+fmt.Sprint(given), nil).Status, "it is of an earlier life")

	given = n.list().Revision
	n.Kill9()
	n.Start()
	assert.Greater(t, n.Get("a").Revision, given, "again")
}

func TestTheLauncherStartsOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"with a damaged file": false, "without one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := nodeOnDisks(t, "size=256k", "size=4m")
			a := n.Awake("a", On(0))
			n.Kill9()
			if lost {
				n.forgetAll("instances")
			} else {
				n.damage("a")
			}
			makeRoom := fill(t, n.State)
			n.Start()
			assert.Equal(t, a.PID, n.settled()["a"].PID)
			n.Ask(n.Get("a"), "hello")
			makeRoom()
			n.Sleep("a", 1)
			n.Kill9()
			n.Start()
			assert.Equal(t, "sleeping", n.settled()["a"].State)
		})
	}
}

func TestBudgetsThatBecameSmallerAreHeldAfterARestart(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	n.Awake("a", On(0))
	n.SwapDone(toNew("b", On(0)))
	n.SwapDone(toNew("c", On(0)))
	n.Kill9()
	n.args = append(n.args, "--budgets-max-sleepers-per-gpu", "1")
	n.Start()
	n.Eventually("the one least recently used is evicted", func() bool {
		return n.Call("GET", "/v2/vllm/instances/a", nil).Status == 404
	})
	all := n.settled()
	assert.Equal(t, "sleeping", all["b"].State)
	assert.Equal(t, "awake", all["c"].State)
}
