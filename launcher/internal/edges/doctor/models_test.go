package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

func TestModelsOfTheConfigurationAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "launcher.yaml")
	look := func(text string) Result {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		results := checkModels(t.Context(), &examination{Options: Options{Config: config.Config{File: file}}})
		require.Len(t, results, 1)
		return results[0]
	}
	assert.Equal(t, Result{Name: "models", Status: OK, Finding: file + " describes 2"}, look("models:\n- {name: a, options: a}\n- {name: b, engine: llamacpp, args: [b]}\n"))
	bad := look("models:\n- {name: a, optoins: a}\n")
	assert.Equal(t, Fail, bad.Status)
	assert.Contains(t, bad.Finding, file+`:2:13: there is no field "optoins": did you mean options?`)
	assert.NotEmpty(t, bad.Remedy)
	assert.Nil(t, checkModels(t.Context(), &examination{}), "without a configuration file")
}
