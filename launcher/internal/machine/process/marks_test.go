package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// stranger starts a process that carries a launcher's mark and a tree's name, in a
// session of its own, as a user. The launcher is not its parent.
func stranger(t *testing.T, mark, name string, user uint32) (pid int) {
	t.Helper()
	program := t.TempDir() + "/sleep" // the user can reach it, and it is no shell, which would drop odd variables
	copyProgram(t, "sleep", program)
	cmd := exec.CommandContext(t.Context(), program, "1000")
	cmd.Env = []string{"HOTSEAT_LAUNCHER=" + mark, "HOTSEAT_INSTANCE=" + name}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if user != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func copyProgram(t *testing.T, name, to string) {
	t.Helper()
	from, err := exec.LookPath(name)
	require.NoError(t, err)
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o755))
	for dir := filepath.Dir(to); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
}

func TestMarksOfAnotherUserAreNotBelieved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: ONLY ROOT CAN START A PROCESS OF ANOTHER USER")
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, mode)
			pid := stranger(t, h.mark, "a", 65534)
			found, err := h.Find()
			require.NoError(t, err)
			assert.Empty(t, found)
			owners, err := h.Owners()
			require.NoError(t, err)
			assert.NotContains(t, owners, pid)
			require.NoError(t, h.Clear(t.Context(), "a"))
			assert.NoError(t, syscall.Kill(pid, 0), "it lives")
		})
	}
}

func TestOddNamesInMarksAreNobodys(t *testing.T) {
	h := newHost(t, modes[len(modes)-1])
	for _, name := range []string{"..", ".", "../../victim/manifest", "a/b", "a\nb", "\x1b[31mred", "-rf", " a", "é", "@", "@@a"} {
		stranger(t, h.mark, name, 0)
		found, err := h.Find()
		require.NoError(t, err)
		assert.Empty(t, found, "%q", name)
	}
}

func TestEarlierMarkCountsInTheSessionOfItsRootAlone(t *testing.T) {
	h := newHost(t, modes[len(modes)-1])
	known, unknown, elsewhere := stranger(t, "earlier", "known", 0), stranger(t, "earlier", "unknown", 0), stranger(t, "earlier", "known", 0)
	early := stranger(t, "earlier", "early", 0)
	require.NoError(t, h.Close())
	h.earlier = map[string]process.EarlierTree{
		"known": {Root: process.ID{PID: known}, Mark: "earlier"},
		"early": {Mark: "earlier"}, // that launcher died before it recorded the root
	}
	require.NoError(t, h.open())
	owners, err := h.Owners()
	require.NoError(t, err)
	assert.Equal(t, "known", owners[known])
	assert.Equal(t, "early", owners[early])
	assert.NotContains(t, owners, unknown)
	assert.NotContains(t, owners, elsewhere, "of another launcher whose folder has the same path")
}

// A process in the middle of execve(2) shows no environment.
func TestProcessThatExecsIsFound(t *testing.T) {
	h := newHost(t, modes[len(modes)-1])
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("exec sh \"$0\""), 0o600))
	cmd := exec.CommandContext(t.Context(), "sh", script) // it has one thread: when another than the first execs, the process looks like a zombie
	cmd.Env = []string{"HOTSEAT_LAUNCHER=" + h.mark, "HOTSEAT_INSTANCE=a", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for range 150 { // a Find that does not look again misses it within 60 in most runs
		found, err := h.Find()
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Contains(t, found[0].PIDs, cmd.Process.Pid)
	}
}
