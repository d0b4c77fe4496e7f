package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// Which processes a launcher takes for its own.

// onGPUsOf has a node use the simulated GPUs of another.
func (n *Node) onGPUsOf(other *Node) {
	n.SimFS = other.SimFS
	n.env = append(slices.Clone(n.env), "HOTSEAT_SIMGPU_DIR="+other.SimFS)
}

// lists gives the ids of a launcher's instances.
func (n *Node) lists() []string {
	n.t.Helper()
	var list launcherapi.InstanceList
	n.Call("GET", "/v2/vllm/instances", nil).Into(n.t, &list)
	ids := []string{}
	for _, i := range list.Instances {
		ids = append(ids, i.InstanceID)
	}
	return ids
}

// leavesAlone starts a second launcher, which has nothing of the first one's, and ends it
// with its engines.
func (n *Node) leavesAlone(first *Node, a launcherapi.Instance) {
	n.t.Helper()
	n.Start()
	assert.Empty(n.t, n.lists())
	assert.Equal(n.t, 404, n.Call("DELETE", "/v2/vllm/instances/a", nil).Status)
	assert.Equal(n.t, 0, n.Stop())
	now := first.Get("a")
	assert.Equal(n.t, "awake", now.State, now.Reason)
	assert.Equal(n.t, a.PID, now.PID)
	first.Ask(now, "hello")
}

// move moves the state folder of a launcher that is dead.
func (n *Node) move() {
	n.t.Helper()
	moved := n.State + "-moved"
	require.NoError(n.t, os.Rename(n.State, moved))
	n.args[slices.Index(n.args, n.State)] = moved
	n.State = moved
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestCopiedStateFolderLeavesEnginesToTheirLauncher(t *testing.T) {
	t.Parallel()
	second := NewStoppedNode(t)
	first := NewNode(t)
	second.onGPUsOf(first)
	a := first.Awake("a", On(0))
	copyFolder(t, first.State, second.State)
	second.leavesAlone(first, a)
	assert.Contains(t, second.Log(), "the state folder was copied from that of another launcher")
	assert.FileExists(t, filepath.Join(second.State, "instances", "a.foreign"), "the record is kept for people")

	// A copy that starts while the first launcher is down leaves the engine to it too.
	first.Kill9()
	require.NoError(t, os.RemoveAll(second.State))
	copyFolder(t, first.State, second.State)
	second.Start()
	assert.Empty(t, second.lists())
	assert.Equal(t, 0, second.Stop())
	first.Start()
	assert.Equal(t, a.PID, first.Get("a").PID)
	first.Ask(first.Get("a"), "hello")
}

func TestMovedStateFolderKeepsItsEngines(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.Kill9()
	n.move()
	n.Start()
	assert.Equal(t, a.PID, n.Get("a").PID)
	n.Ask(n.Get("a"), "hello")
}

func TestLaunchersWithFoldersAtOnePathLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: ONLY ROOT CAN MAKE MOUNT NAMESPACES")
	}
	second := NewStoppedNode(t)
	first := NewNode(t)
	second.onGPUsOf(first)
	a := first.Awake("a", On(0))
	// The second one has a folder of its own in the place of the first one's.
	own := t.TempDir()
	second.args[slices.Index(second.args, second.State)] = first.State
	second.State = own
	second.under = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", "mount --bind '" + own + "' '" + first.State + `' && exec "$@"`, "sh"}
	second.leavesAlone(first, a)
}

// makeEarlier makes the state folder and the engines of a launcher that is dead those of a
// release before random marks: the processes carry a mark that is made of the folder's
// path, and the records have none.
func (n *Node) makeEarlier() {
	n.t.Helper()
	file := filepath.Join(n.State, "mark")
	mark, err := os.ReadFile(file)
	require.NoError(n.t, err)
	require.NoError(n.t, os.Remove(file))
	sum := sha256.Sum256([]byte(n.State))
	carried := "HOTSEAT_LAUNCHER=" + strings.TrimSpace(string(mark))
	early := "HOTSEAT_LAUNCHER=" + hex.EncodeToString(sum[:6])
	early += strings.Repeat("\x00", len(carried)-len(early))
	changed := harness.PIDs(harness.Processes(func(p harness.Process) bool { return replaceInEnvironment(n.t, p.PID, carried, early) }))
	require.NotEmpty(n.t, changed)
	files, err := filepath.Glob(filepath.Join(n.State, "instances", "*.json"))
	require.NoError(n.t, err)
	require.NotEmpty(n.t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(n.t, err)
		var envelope struct {
			Version int            `json:"version"`
			Record  map[string]any `json:"record"`
		}
		require.NoError(n.t, json.Unmarshal(text, &envelope))
		facts := envelope.Record["facts"].(map[string]any)
		require.Contains(n.t, facts, "mark")
		delete(facts, "mark")
		text, err = json.Marshal(envelope)
		require.NoError(n.t, err)
		require.NoError(n.t, os.WriteFile(file, text, 0o600))
	}
}

// replaceInEnvironment writes over a variable where the kernel shows it (fields 50 and 51
// of proc_pid_stat(5)). false: the process has no such variable.
func replaceInEnvironment(t *testing.T, pid int, from, to string) bool {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	at := bytes.Index(env, []byte(from+"\x00"))
	if err != nil || at < 0 {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	begin, err := strconv.ParseInt(string(bytes.Fields(rest)[50-3]), 10, 64)
	require.NoError(t, err)
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrPermission) {
		t.Skip("NOT TESTED: THIS USER MAY NOT CHANGE WHAT A PROCESS SHOWS (ptrace_scope); ROOT MAY")
	}
	require.NoError(t, err)
	defer memory.Close()
	_, err = memory.WriteAt([]byte(to), begin+int64(at))
	require.NoError(t, err)
	return true
}

func TestEnginesOfAReleaseWithoutMarksAreAdopted(t *testing.T) {
	t.Parallel()
	for _, method := range []string{launcherapi.StartExec, launcherapi.StartFork} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			n := newForkNode(t)
			n.Start()
			n.preloader()
			awake := n.run("awake", method)
			sleeper := n.run("sleeper", method)
			n.Sleep("sleeper", 1)
			n.Kill9()
			n.makeEarlier()
			for range 2 { // the second time this release has written the records, and the folder has moved
				n.Start()
				now := n.settled()
				assert.Equal(t, awake.PID, now["awake"].PID)
				assert.Equal(t, "awake", now["awake"].State)
				assert.Equal(t, sleeper.PID, now["sleeper"].PID)
				assert.Equal(t, "sleeping", now["sleeper"].State)
				n.preloader() // the engines that are forked after this have the new mark
				n.Kill9()
				n.move()
			}
			n.Start()
			n.Wake("sleeper")
			n.Delete("awake")
			n.Delete("sleeper")
		})
	}
}

func TestLostMarkIsTakenFromTheRecords(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(file string) error{
		"gone":    os.Remove,
		"damaged": func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := NewNode(t)
			a, b := n.Awake("a", On(0)), n.Awake("b", On(1))
			n.Kill9()
			file := filepath.Join(n.State, "mark")
			mark, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, lose(file))
			require.NoError(t, os.Remove(n.written("b")), "found by its mark alone")
			n.Start()
			all := n.settled()
			assert.Equal(t, a.PID, all["a"].PID)
			assert.Equal(t, b.PID, all["b"].PID)
			again, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(mark), string(again))
		})
	}
}
