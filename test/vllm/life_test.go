//go:build vllm

package vllm

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// row is something of the life of an instance. Rows that name the same instance share
// it; what is left of it is removed after the last of them.
type row struct {
	name string
	id   string // of the instance; empty: the row needs none
	show func(l *life, id string)
	args []string // of the instance; nil: those of the first model
	// seen says that the row has to see it start: it is made when the row's turn
	// has come. Others are made ahead, two starts at once, since by exec each
	// takes most of a minute.
	seen bool
	// forked says that the row is shown by fork alone, which is quick: how the engine was
	// started makes no difference to it by then, or TestTheLifeOfAnInstance shows it by exec.
	forked bool
}

// table is the section "Life of an instance" of spec/rows.md, as far as
// real vLLM can show it without a GPU. Of the rest test/e2e shows with the
// stand-in: out of device memory, device memory that is freed late or held by
// others, a gated model of the hub, an engine that leaves its process group or
// session, and one that fails or is slow at a verb of its own accord.
func table() []row {
	return []row{
		{name: "a sleep while it starts is a conflict and disturbs nothing", id: "a", show: (*life).sleepWhileStarting},
		{name: "it answers when it is awake", id: "a", show: (*life).answers},
		{name: "it sleeps at level 1 and wakes, each asked for twice", id: "a", show: sleepsAndWakes(1)},
		{name: "it sleeps at level 2 and wakes, each asked for twice", id: "a", show: sleepsAndWakes(2)},
		{name: "another that asks for its port is refused, and nobody is hurt", id: "a", show: (*life).portAskedForTwice},
		{name: "a sleep that the engine hangs in is timed out and undone", id: "a", show: (*life).hangsAtSleep},
		{name: "a wake that the engine hangs in is timed out and undone", id: "a", show: (*life).hangsAtWake},
		{name: "it stops with code 0 when it is deleted", id: "a", show: (*life).stops},

		// vLLM ignores SIGTERM while it starts, for more than half a minute.
		{name: "a delete while it starts ends the whole tree soon", id: "cancelled", show: (*life).deleteWhileStarting, seen: true},
		{name: "it fails when its API server dies while it starts", id: "start-api", show: dies("", "starting", -9, "killed"), seen: true},
		{name: "it fails when its EngineCore dies while it starts", id: "start-core", show: dies(engineCore, "starting", 1, "engine_core_died"), seen: true},
		{name: "it fails when it hangs while it starts", show: (*life).hangsAtStart},

		{name: "it fails when its API server dies while it is awake", id: "api", show: dies("", "awake", -9, "killed")},
		{name: "it fails when its EngineCore dies while it is awake", id: "core", show: dies(engineCore, "awake", 0, "engine_core_died")},
		{name: "it fails when its Worker dies while it is awake", id: "worker", show: dies("VLLM::Worker", "awake", 0, "engine_core_died"), forked: true},
		{name: "it fails when it stands still and cannot be brought back", id: "still", show: (*life).standsStill, forked: true},
		{name: "it fails when its API server dies while it falls asleep", id: "falling", show: dies("", "falling_asleep", -9, "killed"), forked: true},
		{name: "it fails when its EngineCore dies while it wakes, for which vLLM then waits for ever", id: "deaf", show: (*life).diesWithoutEnd, forked: true},
		{name: "it fails when its EngineCore dies while it sleeps", id: "asleep", show: dies(engineCore, "sleeping", 0, "engine_core_died"), forked: true},

		{name: "a model that is not there is told", id: "folder", show: failsToStart(1, "model_not_found", "HFValidationError"), args: arguments("/no/such/model", "x")},
		{name: "a flag that is wrong is told", id: "flag", show: failsToStart(2, "wrong_flag", "unrecognized arguments: --no-such-flag"), args: arguments(modelA, "x", "--no-such-flag")},
		{name: "a length that the model cannot do is told", id: "length", show: failsToStart(1, "max_model_len_too_long", "is greater than the derived max_model_len"), args: arguments(modelA, "x", "--max-model-len", "100000"), forked: true},
		{name: "a socket that a stranger took is told", id: "port", show: (*life).socketTaken, seen: true},
	}
}

const engineCore = "VLLM::EngineCore"

// Each row is shown by fork and, where that can differ, by exec, on one node each.
func TestTheLifeOfAnInstance(t *testing.T) {
	seen := map[string]facts{}
	for _, method := range []string{launcherapi.StartExec, launcherapi.StartFork} {
		t.Run(method, func(t *testing.T) {
			seen[method] = showLife(t, method, table())
		})
	}
	t.Run("nobody can tell from outside how an instance was started", func(t *testing.T) {
		fork, exec := seen[launcherapi.StartFork], seen[launcherapi.StartExec]
		assert.Equal(t, exec, fork)
		assert.Greater(t, len(fork.paths), 10)
		assert.Greater(t, len(fork.metrics), 10)
		assert.GreaterOrEqual(t, len(fork.comms), 3, "API server, EngineCore, Worker")
	})
}

// showLife shows the rows of instances that are started by a method, on a node of its own, and
// that nothing of them is left. It returns the facts of the first instance.
func showLife(t *testing.T, method string, rows []row) facts {
	l := &life{node: newNode(t, by(method)), method: method, rows: rows, made: map[string]launcherapi.Instance{}}
	if method == launcherapi.StartFork {
		t.Logf("vLLM %s", l.preloaded("").EngineVersion)
	} else {
		l.rows = slices.DeleteFunc(l.rows, func(r row) bool { return r.forked })
	}
	before := l.inventory()
	l.run()
	l.show("nothing of them all is left", func(t *testing.T) { l.leftNothing(before) })
	return l.facts
}

// by has the launcher start engines by a method.
func by(method string) func(*node) { return func(n *node) { n.startMethod = method } }

// life is a run through the rows.
type life struct {
	*node
	method string
	rows   []row
	made   map[string]launcherapi.Instance // those that there were, as they began
	gpu    int                             // of the next one
	facts  facts                           // of the first one
}

func (l *life) run() {
	for k, r := range l.rows {
		l.show(r.name, func(*testing.T) {
			if r.id != "" && l.made[r.id].PID == 0 {
				l.make(r)
			}
			l.makeAhead(k)
			r.show(l, r.id)
		})
		if r.id != "" && !slices.ContainsFunc(l.rows[k+1:], func(later row) bool { return later.id == r.id }) {
			l.over(r.id)
		}
	}
}

// makeAhead makes instances of later rows, so that two start at once, and three
// are there.
func (l *life) makeAhead(k int) {
	l.t.Helper()
	there, starting := 0, 0
	list, err := l.List(l.t.Context())
	require.NoError(l.t, err)
	for _, i := range list.Instances {
		if i.State == "starting" {
			starting++
		}
		there++
	}
	for _, r := range l.rows[k:] {
		if starting < 2 && there < 3 && r.id != "" && !r.seen && l.made[r.id].PID == 0 {
			l.make(r)
			starting++
			there++
		}
	}
}

// make makes the instance of a row.
func (l *life) make(r row) {
	l.t.Helper()
	args, gpus := r.args, []string(nil)
	if args == nil {
		args = arguments(modelA, "tiny-a")
	}
	if !r.seen { // one that is leaves them to those that are made ahead
		gpus = gpu(l.gpu % 4)
		l.gpu++
	}
	i := l.create(r.id, gpus, args)
	require.Equal(l.t, l.method, i.StartedBy, i.Reason)
	require.Positive(l.t, i.PID)
	l.made[r.id] = i
}

// over removes an instance, if it is there, and checks that nothing is left.
func (l *life) over(id string) {
	if i := l.made[id]; i.PID > 0 {
		if _, err := l.Delete(l.t.Context(), id); err != nil {
			require.True(l.t, client.IsNotFound(err), "%v", err)
		}
		assert.Empty(l.t, tree(i), id)
	}
}

func (l *life) sleepWhileStarting(id string) {
	_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{})
	assert.True(l.t, client.IsConflict(err), "%v", err)
	assert.ErrorContains(l.t, err, "starting")
	now := l.get(id)
	assert.Equal(l.t, "starting", now.State)
	assert.Equal(l.t, l.made[id].Revision, now.Revision)
}

func (l *life) answers(id string) {
	i := l.await(id, "awake")
	assert.Equal(l.t, l.made[id].PID, i.PID)
	assert.Equal(l.t, l.method, i.StartedBy)
	l.facts = l.look(l.t, i)
}

func sleepsAndWakes(level int) func(*life, string) {
	return func(l *life, id string) {
		for range 2 {
			i, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{Level: level})
			require.NoError(l.t, err)
			assert.Equal(l.t, "sleeping", i.State)
			assert.Equal(l.t, level, i.SleepLevel)
		}
		for range 2 {
			i, err := l.Wake(l.t.Context(), id, launcherapi.WakeRequest{})
			require.NoError(l.t, err)
			assert.Equal(l.t, "awake", i.State)
		}
		l.same(id)
	}
}

// same checks that an instance is the same as ever, and answers so.
func (l *life) same(id string) {
	l.t.Helper()
	i := l.get(id)
	assert.Equal(l.t, l.made[id].PID, i.PID)
	assert.Equal(l.t, l.facts.words, ask(l.t, i))
}

func (l *life) portAskedForTwice(id string) {
	i := l.get(id)
	_, err := l.Create(l.t.Context(), "thief", launcherapi.InstanceSpec{Args: arguments(modelA, "tiny-a", "--port", fmt.Sprint(i.Port))})
	assert.True(l.t, client.IsPortTaken(err), "%v", err)
	_, err = l.Get(l.t.Context(), "thief")
	assert.True(l.t, client.IsNotFound(err), "%v", err)
	assert.Equal(l.t, i.Revision, l.get(id).Revision)
	l.same(id)
}

// What a verb may take, and when the engine moves again: long after the launcher
// gave up, and long before it gives up bringing the engine back (15 s).
const (
	hung  = time.Second
	moves = 4 * time.Second
)

// whileHung does something while the EngineCore of an instance hangs.
func (l *life) whileHung(id string, do func(limit *launcherapi.Duration) error) {
	l.t.Helper()
	core := find(l.t, l.get(id), engineCore)
	require.NoError(l.t, syscall.Kill(core, syscall.SIGSTOP))
	later := time.AfterFunc(moves, func() { _ = syscall.Kill(core, syscall.SIGCONT) })
	defer later.Stop()
	limit := launcherapi.Duration(hung)
	err := do(&limit)
	assert.True(l.t, client.IsEngineTimeout(err), "%v", err)
}

func (l *life) hangsAtSleep(id string) {
	l.whileHung(id, func(limit *launcherapi.Duration) error {
		_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{Timeout: limit})
		return err
	})
	i := l.get(id)
	assert.Equal(l.t, "awake", i.State, "it is what it was before")
	assert.Contains(l.t, i.Reason, "did not fall asleep")
	l.same(id)
}

func (l *life) hangsAtWake(id string) {
	_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{})
	require.NoError(l.t, err)
	l.whileHung(id, func(limit *launcherapi.Duration) error {
		_, err := l.Wake(l.t.Context(), id, launcherapi.WakeRequest{Timeout: limit})
		return err
	})
	i := l.get(id)
	assert.Equal(l.t, "sleeping", i.State, "it is what it was before")
	assert.Contains(l.t, i.Reason, "did not wake")
	woken, err := l.Wake(l.t.Context(), id, launcherapi.WakeRequest{})
	require.NoError(l.t, err)
	assert.Empty(l.t, woken.Reason, "what is past is not told any more")
	l.same(id)
}

func (l *life) stops(id string) {
	log := l.logOf(l.t, id)
	for _, line := range []string{"Application startup complete.", "POST /v1/chat/completions HTTP/1.1\" 200", "(EngineCore pid=", "(Worker pid="} {
		assert.Contains(l.t, log, line)
	}
	i := l.get(id)
	shared := sharedMemory(i)
	assert.NotEmpty(l.t, shared, "vLLM's processes share memory")
	l.node.stops(l.t, id)
	for _, file := range shared {
		assert.NoFileExists(l.t, file)
	}
	_, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", i.Port))
	assert.Error(l.t, err, "its port is given back")
}

func (l *life) deleteWhileStarting(id string) {
	i := l.get(id)
	l.eventually("vLLM has begun to start its engine", func() bool {
		require.Equal(l.t, "starting", l.get(id).State)
		return len(tree(i)) > 1
	})
	l.remove(id)
	assert.Empty(l.t, tree(i))
	said, err := os.ReadFile(l.log)
	require.NoError(l.t, err)
	assert.Contains(l.t, string(said), "instance="+id+" from=starting to=stopping")
	assert.NotContains(l.t, string(said), "instance="+id+" from=starting to=awake", "the start is cancelled, not waited for")
}

func (l *life) hangsAtStart(string) {
	const limit = 10 * time.Second // nothing starts in that time that stands still
	n := newNode(l.t, by(l.method), func(n *node) { n.flags = []string{"--start-timeout", limit.String()} })
	if l.method == launcherapi.StartFork {
		n.preloaded("")
	}
	i := n.create("hung", gpu(0), arguments(modelA, "tiny-a"))
	for _, p := range tree(i) {
		require.NoError(l.t, syscall.Kill(p.PID, syscall.SIGSTOP))
	}
	_, err := n.Wake(l.t.Context(), "hung", launcherapi.WakeRequest{}) // waits for the start
	assert.True(l.t, client.IsEngineTimeout(err), "%v", err)
	f := n.await("hung", "failed")
	assert.Equal(l.t, "start_timeout", f.Cause)
	assert.Contains(l.t, f.Reason, limit.String())
	n.gone(i)
	n.remove("hung")
}

// dies shows that an instance fails whose process dies in a state: the API
// server where the title is empty.
func dies(title, state string, exit int, cause string) func(*life, string) {
	return func(l *life, id string) {
		if state != "starting" {
			ask(l.t, l.await(id, "awake"))
		}
		if state == "sleeping" {
			_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{})
			require.NoError(l.t, err)
		}
		i, now := l.get(id), false
		var err error
		switch state {
		case "starting":
			l.eventually("the process that is to die is there, and has logged something", func() bool {
				require.Equal(l.t, "starting", l.get(id).State)
				return l.logOf(l.t, id) != "" && (title == "" || slices.ContainsFunc(tree(i), func(p harness.Process) bool { return p.CommandLine() == title }))
			})
			l.noteShared(i)
		case "falling_asleep": // it stays so while the EngineCore stands still
			require.NoError(l.t, syscall.Kill(find(l.t, i, engineCore), syscall.SIGSTOP))
			_, err = l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{Wait: &now})
		}
		require.NoError(l.t, err)
		require.Equal(l.t, state, l.get(id).State)
		kill9(l.t, i, title)
		f := l.failed(i, exit, cause)
		assert.Contains(l.t, f.Reason, "while "+state)
	}
}

func (l *life) diesWithoutEnd(id string) {
	i := l.await(id, "awake")
	_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{})
	require.NoError(l.t, err)
	core, now := find(l.t, i, engineCore), false
	require.NoError(l.t, syscall.Kill(core, syscall.SIGSTOP)) // it wakes as long as this one stands still
	_, err = l.Wake(l.t.Context(), id, launcherapi.WakeRequest{Wait: &now})
	require.NoError(l.t, err)
	require.NoError(l.t, syscall.Kill(core, syscall.SIGKILL))
	f := l.await(id, "failed")
	wake, _, _ := strings.Cut(f.Reason, "; and ") // the failed attempt to put it back to sleep comes after that
	assert.Contains(l.t, wake, "did not wake")
	assert.NotContains(l.t, wake, context.DeadlineExceeded.Error(), "the death ends the wake, not the end of its time")
	l.gone(i)
	assert.Equal(l.t, "wake_failed", f.Cause)
	assert.NotEmpty(l.t, f.LastLogLines)
	l.t.Log(f.Reason)
}

// failed waits until an instance has failed, and checks what is told of it and
// that nothing of it is left.
func (l *life) failed(i launcherapi.Instance, exit int, cause string) launcherapi.Instance {
	l.t.Helper()
	f := l.await(i.InstanceID, "failed")
	l.gone(i)
	assert.Equal(l.t, launcherapi.StatusStopped, f.Status)
	if assert.NotNil(l.t, f.ExitCode, f.Reason) {
		assert.Equal(l.t, exit, *f.ExitCode)
	}
	assert.Equal(l.t, cause, f.Cause, f.Reason)
	assert.NotEmpty(l.t, f.LastLogLines)
	return f
}

func failsToStart(exit int, cause, logged string) func(*life, string) {
	return func(l *life, id string) {
		f := l.failed(l.made[id], exit, cause)
		assert.Contains(l.t, strings.Join(f.LastLogLines, "\n"), logged)
		log, err := l.Log(l.t.Context(), id, 0, -1)
		require.NoError(l.t, err)
		assert.NotEmpty(l.t, log)
	}
}

func (l *life) standsStill(id string) {
	i := l.await(id, "awake")
	for _, p := range tree(i) {
		require.NoError(l.t, syscall.Kill(p.PID, syscall.SIGSTOP))
	}
	limit := launcherapi.Duration(hung)
	_, err := l.Sleep(l.t.Context(), id, launcherapi.SleepRequest{Timeout: &limit})
	assert.True(l.t, client.IsEngineTimeout(err), "%v", err)
	f := l.await(id, "failed")
	l.gone(i)
	assert.Equal(l.t, "sleep_failed", f.Cause)
	assert.Contains(l.t, f.Reason, "could not be brought back")
	assert.NotEmpty(l.t, f.LastLogLines)
}

// Before the engine makes its socket, another process of the same user can make it.
func (l *life) socketTaken(id string) {
	i := l.made[id]
	listener, err := net.Listen("unix", l.engineAddress(i))
	require.NoError(l.t, err)
	defer listener.Close()
	f := l.failed(i, 1, "port_taken")
	assert.Contains(l.t, strings.Join(f.LastLogLines, "\n"), "Address already in use")
}
