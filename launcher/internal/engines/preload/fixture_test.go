package preload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/test/helpers/patience"
	"hotseat.dev/hotseat/test/helpers/pyengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a folder with a stand-in engine, and the preloaders for it.
type fixture struct {
	t       *testing.T
	dir     string // the installation's folder
	logs    string
	command string
	host    *process.Host
	pool    *Pool
	options Options
}

var recipe = Recipe{
	Distribution: "vllm", Modules: []string{"vllm.engine"}, ForkChildren: true, NVMLSeconds: patience.Wait().Seconds(),
}

func newFixture(t *testing.T, change ...func(*fixture)) *fixture {
	t.Helper()
	return newFixtureIn(t, cgroup.Auto, change...)
}

func newFixtureIn(t *testing.T, mode cgroup.Mode, change ...func(*fixture)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), logs: t.TempDir()}
	var err error
	f.command, err = pyengine.Install(f.dir)
	require.NoError(t, err)
	name := fmt.Sprintf("hotseat-preload-test-%d", os.Getpid()) // another run may be under way
	groups, err := cgroup.Open(cgroup.Options{Mode: mode, Name: name, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	f.host, err = process.NewHost(process.Options{Mark: name, Cgroups: groups, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	f.options = Options{
		Command: f.command, Recipe: recipe, Environ: f.environ(), Dir: filepath.Join(f.logs, "preloaders"), Host: f.host,
		LoadTime: patience.Wait(), FirstLoad: patience.Wait(), AnswerTime: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(f)
	}
	f.pool = New(f.options)
	t.Cleanup(func() {
		f.pool.Close()
		left, err := f.host.Find()
		assert.NoError(t, err)
		assert.Empty(t, left, "processes are left")
		assert.NoError(t, f.host.Close())
		assert.NoError(t, groups.Close())
	})
	f.pool.Begin()
	return f
}

// set changes an option while the pool runs.
func (f *fixture) set(change func(*Options)) {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	change(&f.pool.opts)
}

func (f *fixture) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "COMMON=1", "PYTHONDONTWRITEBYTECODE=1"}
}

// script replaces the engine's command.
func (f *fixture) script(text string) {
	f.t.Helper()
	python, err := pyengine.Python()
	require.NoError(f.t, err)
	require.NoError(f.t, os.WriteFile(f.command, []byte("#!"+python+"\n"+text), 0o700))
}

// shebang puts a new first line before the others of the engine's command.
func (f *fixture) shebang(line string) {
	f.t.Helper()
	was, err := os.ReadFile(f.command)
	require.NoError(f.t, err)
	require.NoError(f.t, os.WriteFile(f.command, append([]byte(line+"\n"), was...), 0o700))
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o600))
}

func (f *fixture) eventually(what string, happened func() bool) {
	f.t.Helper()
	require.Eventually(f.t, happened, patience.Wait(), 5*time.Millisecond, what)
}

// ready waits until an instance with these additional variables would be forked.
func (f *fixture) ready(env ...string) {
	f.t.Helper()
	var last error
	f.eventually("a preloader is ready", func() bool {
		last = f.pool.Check(append(f.environ(), env...))
		return last == nil
	})
}

// instance returns a command of an instance, and the path of its log.
func (f *fixture) instance(name string, args, env []string) (process.Command, string) {
	f.t.Helper()
	path := filepath.Join(f.logs, name+".log")
	output, err := os.Create(path)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = output.Close() })
	return process.Command{
		Name: name, Path: f.command, Args: append([]string{f.command}, args...), Env: append(f.environ(), env...), Output: output,
	}, path
}

// fork forks an instance, which is killed when the test ends.
func (f *fixture) fork(name string, args, env []string) (tree *process.Process, log string) {
	f.t.Helper()
	c, log := f.instance(name, args, env)
	tree, err := f.pool.Fork(c)
	require.NoError(f.t, err)
	f.killLater(tree)
	return tree, log
}

// forkedFacts forks an instance with these additional variables, and returns the facts
// that it writes about itself.
func (f *fixture) forkedFacts(name string, env ...string) (got facts) {
	f.t.Helper()
	_, log := f.fork(name, nil, env)
	f.line(log, 0, &got)
	return got
}

// startBoth starts one instance by exec and one by fork.
func (f *fixture) startBoth(args, env []string) (execd, forked facts) {
	f.t.Helper()
	c, log := f.instance("execd", args, env)
	tree, err := f.host.Start(c)
	require.NoError(f.t, err)
	f.killLater(tree)
	f.line(log, 0, &execd)
	_, log = f.fork("forked", args, env)
	f.line(log, 0, &forked)
	return execd, forked
}

func (f *fixture) killLater(tree *process.Process) {
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.t.Context()), patience.Wait()) // the test's own has ended
		defer cancel()
		assert.NoError(f.t, tree.Kill(ctx))
	})
}

// line waits for the n-th line of an instance's log, and decodes it.
func (f *fixture) line(log string, n int, into any) {
	f.t.Helper()
	f.eventually("the engine writes", func() bool {
		data, err := os.ReadFile(log)
		require.NoError(f.t, err)
		lines := strings.SplitAfter(string(data), "\n")
		return len(lines) > n && strings.HasSuffix(lines[n], "\n") && json.Unmarshal([]byte(lines[n]), into) == nil
	})
}

// refusalReason returns why an instance with these additional variables is not forked.
func (f *fixture) refusalReason(env ...string) string {
	f.t.Helper()
	c, _ := f.instance(fmt.Sprintf("refused-%d", time.Now().UnixNano()), nil, env)
	tree, err := f.pool.Fork(c)
	if err == nil {
		f.killLater(tree)
	}
	not, ok := errors.AsType[*NotForkedError](err)
	require.True(f.t, ok, "%v", err)
	return not.Reason
}
