package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Of the section "Crashes and full disks" of spec/rows.md: disk full in the state
// folder and in the log folder: clear errors, children unharmed.

// smallDisk mounts a disk of its own on a folder, which it makes. Where that is
// not allowed the test is skipped, loudly.
func smallDisk(t *testing.T, dir, options string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, options+",mode=700"); err != nil {
		t.Skipf("NOT TESTED: A DISK CANNOT BE MADE FULL, SINCE ONLY ROOT MAY MOUNT ONE: %v", err)
	}
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// fill leaves no room on the disk of a folder, until the returned call.
func fill(t *testing.T, dir string) (makeRoom func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	return func() { require.NoError(t, os.Remove(path)) }
}

// nodeOnDisks makes a node whose state folder and log folder lie on disks of
// their own. Cleanups run last first: the launcher ends before its disks go.
func nodeOnDisks(t *testing.T, state, logs string, flags ...string) *Node {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	smallDisk(t, dir, state)
	smallDisk(t, filepath.Join(dir, "logs"), logs)
	n := NewStoppedNode(t, append([]string{"--state-dir", dir}, flags...)...)
	n.State = dir
	n.Start()
	return n
}

// refusedForStorage checks that a call was refused since nothing can be written.
func refusedForStorage(t *testing.T, n *Node, a Answer) {
	t.Helper()
	p := a.Problem(t)
	assert.Equal(t, 507, p.Status, p.Detail)
	assert.Equal(t, launcherapi.CodeStorage, p.Code)
	assert.Contains(t, p.Detail, "no space left on device")
	assert.Contains(t, p.Detail, n.State, "it names the file")
}

// brimful waits until nothing more can be written; a sleeps at the end. The
// launcher writes in the room that it has: that is taken from it.
func (n *Node) brimful(a launcherapi.Instance) {
	n.t.Helper()
	n.Eventually("nothing more can be written down", func() bool {
		spares, err := filepath.Glob(filepath.Join(n.State, "*", ".spare"))
		require.NoError(n.t, err)
		for _, spare := range spares {
			require.NoError(n.t, os.RemoveAll(spare))
		}
		ballast, err := os.OpenFile(filepath.Join(n.State, "ballast"), os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(n.t, err)
		defer ballast.Close()
		for err == nil {
			_, err = ballast.Write(make([]byte, 4096))
		}
		require.ErrorIs(n.t, err, unix.ENOSPC)
		n.Sleep(a.InstanceID, 1)
		n.Wake(a.InstanceID)
		return !bytes.Contains(n.Call("GET", "/metrics", nil).Body, []byte("hotseat_state_write_failures_total 0\n"))
	})
	n.Sleep(a.InstanceID, 1)
}

func TestAFullDiskInTheStateFolderHarmsNoEngineAndIsToldClearly(t *testing.T) {
	t.Parallel()
	n := nodeOnDisks(t, "size=256k", "size=4m")
	a := n.Awake("a", On(0))
	makeRoom := fill(t, n.State)
	n.brimful(a)
	assert.Contains(t, n.Log(), "cannot write to the state folder", "it is logged")

	assert.Equal(t, "sleeping", n.Get("a").State)
	assert.Equal(t, "awake", n.Wake("a").State)
	n.Ask(n.Get("a"), "hello")
	n.refusesNewOnes()
	now := n.Get("a")
	assert.Equal(t, a.PID, now.PID)
	assert.Equal(t, "awake", now.State)
	n.Ask(now, "still there?")
	n.noneDoubled(map[string]launcherapi.Instance{"a": now})

	makeRoom()
	n.SwapDone(toNew("b", On(0)))
	n.SwapDone(to("a"))
	n.Delete("b")
	n.Delete("a")
	n.nothingLeft()
}

// refusesNewOnes checks that nothing new is begun that cannot be written down.
func (n *Node) refusesNewOnes() {
	n.t.Helper()
	var refused Answer
	n.Eventually("a create is refused", func() bool {
		refused = n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1)))
		if refused.Status == 201 {
			n.Delete("b")
		}
		return refused.Status != 201
	})
	refusedForStorage(n.t, n, refused)
	assert.Equal(n.t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
	p := n.Swap(toNew("c", On(0), "--served-model-name", strings.Repeat("long", 1000))).Problem(n.t)
	assert.Contains(n.t, p.Detail, "no space left on device")
	if p.Status != 507 { // the intent was short enough to be written, the instance was not
		assert.Equal(n.t, 502, p.Status)
		assert.Equal(n.t, launcherapi.OutcomeUndone, p.Outcome)
		assert.Equal(n.t, launcherapi.CodeStorage, p.Cause)
	}
	assert.Equal(n.t, 404, n.Call("GET", "/v2/vllm/instances/c", nil).Status)
}

func TestARestartWithAFullStateFolderTakesEveryEngineOverAsItIs(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"sleeping", "awake"} {
		t.Run("one that is "+last, func(t *testing.T) {
			n := nodeOnDisks(t, "size=256k", "size=4m")
			a := n.Awake("a", On(0))
			makeRoom := fill(t, n.State)
			n.brimful(a) // what is written of a is not true any more
			if last == "awake" {
				n.Wake("a")
			}
			n.Kill9()
			n.Start()
			all := n.settled()
			assert.Equal(t, a.PID, all["a"].PID)
			assert.Equal(t, last, all["a"].State)
			if last == "sleeping" {
				n.Wake("a")
			}
			n.Ask(n.Get("a"), "hello")
			makeRoom()
			n.SwapDone(toNew("b", On(0)))
			n.Ask(n.Get("b"), "hello")
		})
	}
}

func TestAFullDiskInTheLogFolderHarmsNoEngine(t *testing.T) {
	t.Parallel()
	n := nodeOnDisks(t, "size=4m", "size=64k")
	a := n.Awake("a", On(0))
	makeRoom := fill(t, filepath.Join(n.State, "logs"))
	n.Sleep("a", 1)
	n.Wake("a")
	n.Ask(n.Get("a"), "hello")
	assert.Equal(t, a.PID, n.Get("a").PID)
	log := n.Call("GET", "/v2/vllm/instances/a/log", nil)
	assert.Equal(t, 200, log.Status)
	assert.NotEmpty(t, log.Body)
	b := n.Awake("b", On(1)) // it runs, and what it says is lost
	n.Ask(b, "hello")
	n.Delete("b")
	makeRoom()
	n.Ask(n.Awake("b", On(1)), "hello")
	assert.NotEmpty(t, n.Call("GET", "/v2/vllm/instances/b/log", nil).Body)
}

func TestALogThatCannotBeMadeRefusesTheCreateClearly(t *testing.T) {
	t.Parallel()
	n := nodeOnDisks(t, "size=4m", "size=64k,nr_inodes=2") // the folder and one log
	a := n.Awake("a", On(0))
	refusedForStorage(t, n, n.Call("PUT", "/v2/vllm/instances/b", Spec("b", On(1))))
	n.onlyAIsLeft(a)
	failed := n.Swap(toNew("b", On(0)))
	p := failed.Problem(t)
	assert.Contains(t, []int{502, 507}, p.Status)
	assert.Contains(t, p.Detail, "no space left on device")
	assert.Equal(t, "awake", n.Get("a").State)
	n.Ask(n.Get("a"), "hello")
	assert.Equal(t, 404, n.Call("GET", "/v2/vllm/instances/b", nil).Status)
}
