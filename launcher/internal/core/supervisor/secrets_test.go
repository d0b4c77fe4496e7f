package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestSecretIsHiddenEverywhere(t *testing.T) {
	vault := t.TempDir()
	file := filepath.Join(vault, "f")
	require.NoError(t, os.WriteFile(file, []byte("first-line\n\nsecond-line\n"), 0o600))
	config := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(config, []byte("api-key: sk-config\nspeculative-config: {x: {auth_token: sk-nested}}\n"), 0o600))
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-flag", "--x=sk-env", "--y", "sk-flag!", "--config", config)
		s.EnvVars = map[string]launcherapi.EnvValue{
			"DB_PASS": {Value: "sk-env"}, "A_COPY": {Value: "<sk-flag>"}, "PLAIN": {Value: "in plain sight"},
			"BLOB": {Value: `{"api_key": "sk-blob", "n": 1}`}, "ODD_NAME": {FromFile: file}, "HALF": {Value: "x second-line x"},
			"FROM_CONFIG": {Value: "sk-config sk-nested"}, "SOME_TOKEN": {Value: "true"},
		}
		s.Annotations = map[string]string{"note": "key sk-flag, pass sk-env, blob sk-blob", launcherapi.AnnotationPinned: "true"}
		view, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.NoError(t, err)
		r.runner.tree("a").exitCode(1)
		synctest.Wait()
		failed, err := r.Get("a")
		require.NoError(t, err)
		shown, err := json.Marshal([]any{view, failed})
		require.NoError(t, err)
		written, err := json.Marshal(remembered(t, r))
		require.NoError(t, err)
		for _, text := range []string{string(shown), string(written)} {
			for _, secret := range []string{"sk-", "first-line", "second-line"} {
				assert.NotContains(t, text, secret)
			}
			assert.Contains(t, text, "in plain sight")
			assert.Contains(t, text, file)
		}
		assert.Equal(t, "true", failed.Annotations[launcherapi.AnnotationPinned])
		assert.Contains(t, failed.LastLogLines[0], "non-default args")
	}, func(o *Options) {
		o.EnvFileDirs = []string{vault}
		o.Logs = tellingLogs{fakeLogs{dir: vault}, []string{"non-default args: sk-flag first-line", "sk-config second-line sk-blob sk-nested"}}
	})
}

// tellingLogs is the log of an engine that prints its arguments.
type tellingLogs struct {
	fakeLogs
	lines []string
}

func (l tellingLogs) Tail(string, int, int) ([]string, error) { return l.lines, nil }

func TestRefusalShowsNoSecret(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		s := spec("0.9")
		s.Args = append(s.Args, "--api-key", "sk-flag", "--port", "sk-flag", "--seed")
		_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
		require.ErrorContains(t, err, "--port")
		assert.NotContains(t, err.Error(), "sk-flag")
	})
}
