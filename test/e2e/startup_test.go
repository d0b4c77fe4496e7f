package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Launchers that must not start: what is wrong is told in one line that names
// the file and says what helps, the exit code is 2, and nothing is touched.

// refused runs a launcher that does not start, and gives the line that says
// why.
func refused(t *testing.T, prepare func(*exec.Cmd), args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin.launcher, append([]string{
		"serve", "--listen", "127.0.0.1:0", "--gpus", "simulated:2", "--vllm", bin.enginesim,
	}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if prepare != nil {
		prepare(cmd)
	}
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "it started: %s", out.String())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 2, exit.ExitCode(), out.String())
	said := out.String()
	for strings.HasPrefix(said, "time=") { // what went well before
		line, rest, _ := strings.Cut(said, "\n")
		assert.Contains(t, line, "level=INFO")
		said = rest
	}
	line, found := strings.CutSuffix(said, "\n")
	assert.True(t, found)
	assert.NotContains(t, line, "\n", "one line")
	assert.Contains(t, line, "launcher: ")
	return line
}

// laughs is a small file that is a large one when its aliases are followed.
func laughs() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for k := 1; k < 10; k++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", k, k, strings.Repeat(fmt.Sprintf("*a%d,", k-1), 8), k-1)
	}
	return text
}

func TestAMalformedConfigurationFileIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, says string }{
		"no YAML":                      {"listen: [", ":1: this is no YAML"},
		"a tab":                        {"budgets:\n\tmax_instances: 1\n", ":2: "},
		"no UTF-8":                     {"vllm: \xff\n", "not UTF-8"},
		"no mapping":                   {"- listen\n", ":1: the file must be a mapping"},
		"a bare word":                  {"listen\n", ":1: the file must be a mapping"},
		"an unknown setting":           {"gpus: simulated:1\nlisten_adress: 127.0.0.1:1\n", `:2: there is no setting "listen_adress"`},
		"a setting near another":       {"state-dir: /tmp\n", "state_dir"},
		"an unknown budget":            {"budgets:\n  max_instance: 1\n", "max_instances"},
		"budgets that are a number":    {"budgets: 5\n", ":1: "},
		"a setting twice":              {"vllm: a\ngpus: auto\nvllm: b\n", ":3: vllm is set a second time, after line 1"},
		"a second document":            {"vllm: a\n---\nvllm: b\n", "second document"},
		"a number that is none":        {"watch_buffer: many\n", ":1: watch_buffer must be a whole number"},
		"a number too small":           {"watch_buffer: 0\n", "at least 1"},
		"a time below zero":            {"drain_timeout: -5\n", ":1: drain_timeout: "},
		"a time without a unit":        {"drain_timeout: \"5 parsecs\"\n", ":1: drain_timeout: "},
		"an address without a port":    {"listen: localhost\n", ":1: listen: must be an address"},
		"a list for a string":          {"vllm: [a, b]\n", ":1: vllm must be a string, not a list"},
		"nothing where something must": {"vllm:\n", ":1: vllm must be a string, not nothing"},
		"a choice that is none":        {"on_exit: explode\n", "stop, leave"},
		"yes for true":                 {"llm_d_compat: yes\n", "true or false"},
		"an anchor":                    {"vllm: &a x\n", "write the value itself"},
		"aliases of aliases":           {laughs(), "there is no setting"},
		"a deep nest":                  {"gpus: auto\nvllm: " + strings.Repeat("[", 100_000) + "\n", ":2: lists and mappings are nested more than 100 deep"},
		"a deep list":                  {"vllm:\n  " + strings.Repeat("- ", 100_000) + "\n", ":2: lists and mappings are nested more than 100 deep"},
		"a zero byte":                  {"vllm: a\x00b\n", "zero byte"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, state := filepath.Join(t.TempDir(), "hotseat.yaml"), filepath.Join(t.TempDir(), "state")
			require.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			line := refused(t, nil, "--config", file, "--state-dir", state)
			assert.Contains(t, line, file)
			assert.Contains(t, line, test.says)
			assert.NoDirExists(t, state, "nothing was touched")
		})
	}
}

func TestAConfigurationFileThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, file := range []string{filepath.Join(folder, "missing.yaml"), folder} {
		line := refused(t, nil, "--config", file)
		assert.Contains(t, line, file)
		line = refused(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "HOTSEAT_CONFIG="+file) })
		assert.Contains(t, line, file)
	}
}

func TestASettingThatCannotBeUsedIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte(" \n"), 0o600))
	for name, test := range map[string]struct {
		args []string
		says []string
	}{
		"an address that is taken":     {[]string{"--listen", taken.Addr().String()}, []string{taken.Addr().String(), "--listen"}},
		"a public address, no token":   {[]string{"--listen", "0.0.0.0:0"}, []string{"0.0.0.0:0", "--token-file", "--insecure-public"}},
		"every address, no token":      {[]string{"--listen", ":0"}, []string{"--token-file"}},
		"every IPv6 address, no token": {[]string{"--listen", "[::]:0"}, []string{"--token-file"}},
		"a missing token file":         {[]string{"--token-file", empty + "x"}, []string{empty + "x", "--token-file"}},
		"an empty token file":          {[]string{"--token-file", empty}, []string{empty, "empty", "--token-file"}},
		"an engine that is not there":  {[]string{"--vllm", "/nowhere/vllm"}, []string{"/nowhere/vllm", "--vllm"}},
		"an unknown flag":              {[]string{"--lisen", "x"}, []string{"--lisen", "--help"}},
		"an argument too many":         {[]string{"more"}, []string{`"more"`}},
		"a flag without a value":       {[]string{"--listen"}, []string{"--listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "state")
			line := refused(t, nil, append([]string{"--state-dir", state}, test.args...)...)
			for _, part := range test.says {
				assert.Contains(t, line, part)
			}
			assert.NoDirExists(t, state)
		})
	}
}

func TestAStateFolderThatCannotBeUsedIsRefused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	odd := func(name string, spoil func(path string) error) string {
		dir := filepath.Join(root, "odd-"+name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, spoil(filepath.Join(dir, name)))
		return dir
	}
	folder := func(path string) error { return os.Mkdir(path, 0o700) }
	plain := func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) }
	for name, state := range map[string]string{
		"a file":                         file,
		"below a file":                   filepath.Join(file, "state"),
		"where no folder can be made":    "/proc/hotseat/state",
		"one whose lock is a folder":     odd("lock", folder),
		"one of an earlier version":      odd("journal", plain),
		"one whose logs are a file":      odd("logs", plain),
		"one whose instances are a file": odd("instances", plain),
		"one whose swaps are a file":     odd("swaps", plain),
	} {
		t.Run(name, func(t *testing.T) {
			line := refused(t, nil, "--state-dir", state)
			assert.Contains(t, line, state)
			assert.Contains(t, line, "--state-dir")
		})
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(content))
}

func TestAStateFolderThatIsNotWritableIsRefused(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.Mkdir(state, 0o555))
	before := tree(t, state)
	line := refused(t, func(cmd *exec.Cmd) {
		if os.Geteuid() != 0 {
			return
		}
		// Nothing is read-only for root: somebody else runs it.
		require.NoError(t, os.Chmod(filepath.Dir(bin.launcher), 0o711))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}, "--state-dir", state)
	assert.Contains(t, line, state)
	assert.Contains(t, line, "permission denied")
	assert.Contains(t, line, "--state-dir")
	assert.Equal(t, before, tree(t, state))
}

func TestAStateFolderOfAnotherRunningLauncherIsRefused(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	before := tree(t, n.State)
	line := refused(t, nil, "--state-dir", n.State)
	assert.Contains(t, line, n.State)
	assert.Contains(t, line, fmt.Sprint("pid ", n.PID()))
	assert.Contains(t, line, "choose another")
	assert.Equal(t, before, tree(t, n.State))
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(n.State, link))
	refused(t, nil, "--state-dir", link)
	assert.Equal(t, a.Revision, n.Get("a").Revision)
	n.Ask(a, "still there?")
}

func TestAStateFolderOfANewerVersionIsRefusedAndItsEnginesLiveOn(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.Kill9()
	content, err := os.ReadFile(n.written("a"))
	require.NoError(t, err)
	require.Contains(t, string(content), `"version":1,`)
	newer := strings.Replace(string(content), `"version":1,`, `"version":99,`, 1)
	require.NoError(t, os.WriteFile(n.written("a"), []byte(newer), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(n.State, "swaps", "damaged.json"), nil, 0o600))

	before := tree(t, n.State)
	line := refused(t, func(cmd *exec.Cmd) { cmd.Env = n.env }, "--state-dir", n.State)
	assert.Contains(t, line, n.written("a"))
	assert.Contains(t, line, "version 99")
	assert.Contains(t, line, "start the newer program")
	after := tree(t, n.State)
	assert.Equal(t, withoutLock(before), withoutLock(after), "nothing was touched")
	assert.NoError(t, syscall.Kill(a.PID, 0), "the engine lives on")

	require.NoError(t, os.WriteFile(n.written("a"), content, 0o600))
	n.Start()
	assert.Equal(t, a.PID, n.Get("a").PID)
	n.Ask(n.Get("a"), "still there?")
}

// withoutLock leaves out the lock file, which names whoever took it last.
func withoutLock(paths []string) []string {
	var out []string
	for _, p := range paths {
		if !strings.Contains(p, "/lock ") {
			out = append(out, p)
		}
	}
	return out
}
