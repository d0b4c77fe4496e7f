package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher"
)

// configured creates instance a with a --config file, and returns the path that its
// engine gets.
func configured(t *testing.T, r *rig, content string) (original, told string) {
	t.Helper()
	original = filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(original, []byte(content), 0o644))
	s := spec("0.9")
	s.Args = append(s.Args, "--config="+original, "--seed", "1")
	_, err := r.Create(launcher.CreateRequest{ID: "a", Spec: s})
	require.NoError(t, err)
	synctest.Wait()
	args := r.runner.started[0].Args
	at := slices.Index(args, "--config")
	require.Positive(t, at)
	assert.NotContains(t, args, "--config="+original)
	return original, args[at+1]
}

func TestEngineReadsTheLaunchersCopyOfItsConfig(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		r.engine.ready = func(context.Context) error { return errBroken }
		original, told := configured(t, r, "dtype: auto\n")
		require.NotEqual(t, original, told)
		require.NoError(t, os.WriteFile(original, []byte("root-path: /v1\n"), 0o644))
		data, err := os.ReadFile(told)
		require.NoError(t, err)
		assert.Equal(t, "dtype: auto\n", string(data))
		info, err := os.Stat(told)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		assert.Equal(t, filepath.Dir(told), r.opts.ConfigDir)
		r.runner.tree("a").exitCode(1)
		synctest.Wait()
		assert.Equal(t, "failed", r.state("a"))
		assert.NoFileExists(t, told)
		assert.FileExists(t, original)
	})
}

func TestConfigCopyIsRemovedWhenTheEngineServes(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		original, told := configured(t, r, "api-key: sk-1234\n")
		assert.Equal(t, "awake", r.state("a"))
		assert.NoFileExists(t, told)
		assert.FileExists(t, original)
	})
}

func TestRecoverKeepsConfigCopiesOnlyForStartingEngines(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"starting", "awake", "forgotten"} {
			require.NoError(t, os.WriteFile(r.configPath(id), []byte("api-key: sk-1234\n"), 0o600))
		}
		others := []string{r.configPath("my settings"), r.configPath(".hidden")}
		for _, path := range others {
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o600))
		}
		r.removeConfigs(SavedState{Instances: []SavedInstance{
			{Facts: facts{ID: "starting"}, State: launcher.Starting}, {Facts: facts{ID: "awake"}, State: launcher.Awake},
		}})
		assert.FileExists(t, r.configPath("starting"))
		assert.NoFileExists(t, r.configPath("awake"))
		assert.NoFileExists(t, r.configPath("forgotten"))
		for _, path := range others {
			assert.FileExists(t, path, "no instance has such an id")
		}
	})
}
