package daemon

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

func TestEnginesSeeOnlyTheGPUsOfTheLauncher(t *testing.T) {
	environ := []string{"A=1", "CUDA_VISIBLE_DEVICES=0"}
	for limit, want := range map[string][]string{
		"all": environ,
		"1":   {"A=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1"},
	} {
		gpus, err := gpu.Open(gpu.Options{Source: "simulated:2", Visible: []string{limit}, StateDir: t.TempDir()})
		require.NoError(t, err)
		assert.Equal(t, want, limitedTo(environ, gpus), limit)
		require.NoError(t, gpus.Close())
	}
	assert.Equal(t, []string{"A=1", "CUDA_VISIBLE_DEVICES=0"}, environ, "it is not changed")
}
