package supervisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// adopted returns instance a after its secrets were read from a process with these
// arguments and variables.
func adopted(t *testing.T, env []string, args ...string) *instance {
	t.Helper()
	own := []string{"-c", "read forever", "/bin/engine", "serve", "m", "--host", "127.0.0.1", "--port", "40001"}
	engine := exec.Command("/bin/sh", append(own, args...)...)
	engine.Env = env
	input, err := engine.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, engine.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = engine.Wait() // read fails at the end of its input
	})
	require.Eventually(t, func() bool { return len(procfs.Table{}.Arguments(engine.Process.Pid)) > 0 },
		patience.Wait(), time.Millisecond, "the kernel shows arguments and variables only some time after an exec has begun")
	i := &instance{engine: &fakeEngine{}, root: process.ID{PID: engine.Process.Pid}}
	i.facts.Spec.EnvVars = map[string]launcherapi.EnvValue{"BLOB": {Value: `{"api_key":"[redacted]"}`}}
	newRig(t).readSecrets(i)
	return i
}

func TestAdoptedInstanceKeepsItsSecrets(t *testing.T) {
	config := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(config, []byte("hf-token: sk-config\n"), 0o600))
	i := adopted(t, []string{`BLOB={"api_key":"sk-blob"}`}, "--config", config, "--api-key", "sk-flag")
	assert.Equal(t, "[redacted] [redacted] [redacted]", i.secrets.Hide("sk-flag sk-blob sk-config"))
}

func TestKeyOfARemovedConfigFileIsForgotten(t *testing.T) {
	i := adopted(t, []string{"VLLM_API_KEY=sk-other"}, "--config", "/no/such/copy.yaml")
	assert.True(t, i.keyForgotten, "the file's key counts more than the variable")
}

func TestLogOfAnUnwatchedEndShowsNoSecret(t *testing.T) {
	telling := func(o *Options) {
		o.Logs = tellingLogs{fakeLogs{dir: t.TempDir()}, []string{"non-default args: {'api_key': ['sk-flag']}"}}
	}
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-flag")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.NoError(t, err)
		memory := remembered(t, r)
		fresh, _ := nextLife(t, r, telling)
		defer fresh.Close(t.Context(), false)
		fresh.runner.gone["a"] = process.Exit{}
		require.NoError(t, fresh.Recover(t.Context(), memory))
		view, err := fresh.Get("a")
		require.NoError(t, err)
		require.Equal(t, "failed", view.State)
		for _, line := range view.LastLogLines {
			assert.NotContains(t, line, "sk-flag")
		}
	}, telling)
}
