package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSectionsOfModelsStandBesideSettings(t *testing.T) {
	const file = "models:\n- {name: a, any: [thing]}\ngpus: nvml\nselectors: 5\nprofiles:\n"
	c, err := load(t, file, nil)
	require.NoError(t, err)
	assert.Equal(t, "nvml", c.GPUs)

	_, err = load(t, file+"models: []\n", nil)
	assert.ErrorContains(t, err, ":6: models is set a second time, after line 1: keep one")
	_, err = load(t, "model: []\n", nil)
	assert.ErrorContains(t, err, `:1: there is no setting "model": did you mean models?`)
	_, err = load(t, "budgets: {models: []}\n", nil)
	assert.ErrorContains(t, err, `:1: there is no setting "budgets.models"`)
}

func TestPathOfTheFileIsTold(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "h.yaml"), nil, 0o600))
	t.Chdir(dir)
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c, err := Register(flags).Load(lookup([]string{"HOME=/home/a", "HOTSEAT_CONFIG=h.yaml"}))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "h.yaml"), c.File)
}
