package process_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// roleVariable makes this test binary play a role (roles_test.go) in place of
// running tests.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		play(strings.Fields(role))
		os.Exit(99) // a role ends by itself, or is killed
	}
	goleak.VerifyTestMain(m)
}

// modes that every test of trees is run in.
var modes = []cgroup.Mode{cgroup.V2, cgroup.V1, cgroup.None}

// host is a Host under test, and what is needed to make another like it.
type host struct {
	*process.Host
	groups  *cgroup.Manager
	mode    cgroup.Mode
	mark    string
	exitDir string
	earlier map[string]process.EarlierTree

	scratchDir string
	sharedDir  string
	recordWait time.Duration
}

var hosts int

// newHost makes a Host that must have no process left at the end of the test.
func newHost(tb testing.TB, mode cgroup.Mode) *host {
	tb.Helper()
	hosts++
	h := &host{mode: mode, mark: fmt.Sprintf("test-%d-%d", os.Getpid(), hosts), exitDir: tb.TempDir(), recordWait: patience.Wait()}
	if err := h.open(); err != nil {
		tb.Skipf("NOT TESTED: this machine does not offer cgroup mode %s: %v", mode, err)
	}
	tb.Cleanup(func() {
		found, err := h.Find()
		assert.NoError(tb, err)
		assert.Empty(tb, found, "processes left by the test")
		assert.Eventually(tb, func() bool {
			children, err := procfs.Children()
			return err == nil && len(children) == 0
		}, patience.Wait(), time.Millisecond, "children are left that nobody reaps")
		assert.NoError(tb, h.Close())
		if len(found) > 0 {
			sweep(tb, h, found)
		}
		assert.NoError(tb, h.groups.Close())
		left, err := filepath.Glob("/sys/fs/cgroup/*/hotseat-" + h.mark)
		assert.NoError(tb, err)
		assert.Empty(tb, left, "groups left")
	})
	return h
}

// sweep ends what a failed test left.
func sweep(tb testing.TB, h *host, left []process.Found) {
	tb.Helper()
	assert.NoError(tb, h.open())
	for _, tree := range left {
		assert.NoError(tb, h.Clear(context.Background(), tree.Name))
	}
	assert.NoError(tb, h.Close())
}

// open makes the Host; called again, the one of the next launcher.
func (h *host) open() (err error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	h.groups, err = cgroup.Open(cgroup.Options{Mode: h.mode, Name: "hotseat-" + h.mark, Logger: logger})
	if err != nil {
		return err
	}
	h.Host, err = process.NewHost(process.Options{
		Mark: h.mark, Earlier: h.earlier, Cgroups: h.groups, ExitDir: h.exitDir, RecordWait: h.recordWait, ScratchDir: h.scratchDir, SharedDir: h.sharedDir, Logger: logger,
	})
	return err
}

// child is a started instance.
type child struct {
	*process.Process
	voice
}

// voice is what a child says.
type voice struct {
	t     *testing.T
	lines *bufio.Reader
}

func listen(t *testing.T, output *os.File) voice {
	t.Helper()
	require.NoError(t, output.SetReadDeadline(time.Now().Add(patience.Wait())))
	return voice{t: t, lines: bufio.NewReader(output)}
}

// command of an instance that plays a role.
func command(name, role string) process.Command {
	return process.Command{
		Name: name,
		Path: "/proc/self/exe",
		Args: []string{"engine", name},
		Env:  cast(os.Environ(), role),
	}
}

// cast gives the environment a role in place of the one it has.
func cast(env []string, role string) []string {
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, roleVariable+"=") })
	return append(env, roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
}

// start starts an instance, and listens to it.
func (h *host) start(t *testing.T, name, role string) *child {
	t.Helper()
	return h.begin(t, command(name, role))
}

// startPair starts the instance "a" in a role of a parent, and gives its worker too
// when both run. The parent may be ready first: its start of the worker returns while the
// kernel still sets up the worker's memory, and the worker shows no environment by then.
func (h *host) startPair(t *testing.T, role string) (c *child, worker int) {
	t.Helper()
	c = h.start(t, "a", role)
	said := c.saysAll("worker", "working", "ready")
	return c, atoi(t, said["worker"])
}

func (h *host) begin(t *testing.T, c process.Command) *child {
	t.Helper()
	output, input, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { output.Close() })
	c.Output = input
	p, err := h.Start(c)
	require.NoError(t, err)
	require.NoError(t, input.Close())
	return &child{Process: p, voice: listen(t, output)}
}

// says waits for a line that begins with the word, and gives the rest of it.
func (v voice) says(word string) string {
	v.t.Helper()
	for {
		line, err := v.lines.ReadString('\n')
		require.NoError(v.t, err, "while waiting for %q", word)
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// saysAll waits for a line for each of the words, in whatever order they come.
func (v voice) saysAll(words ...string) map[string]string {
	v.t.Helper()
	said := map[string]string{}
	for len(said) < len(words) {
		line, err := v.lines.ReadString('\n')
		require.NoError(v.t, err, "while waiting for %q, with %q", words, said)
		if word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); slices.Contains(words, word) {
			said[word] = rest
		}
	}
	return said
}

func (v voice) saysPID(word string) int {
	v.t.Helper()
	pid, err := strconv.Atoi(v.says(word))
	require.NoError(v.t, err)
	return pid
}

func stop(t *testing.T, p *process.Process) {
	t.Helper()
	require.NoError(t, p.Stop(patient(t), patience.Wait()/4))
}

func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Wait())
	t.Cleanup(cancel)
	return ctx
}

func exited(t *testing.T, p *process.Process) process.Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience.Wait()):
		require.Fail(t, "the process has not ended")
	}
	return p.Exit()
}

func code(t *testing.T, exit process.Exit) int {
	t.Helper()
	require.NotNil(t, exit.Code, "the exit code is not known")
	return *exit.Code
}

func alive(pid int) bool {
	stat, err := procfs.Read(pid)
	return err == nil && stat.Alive()
}
