package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATimeLimitOfZeroIsTheDefault(t *testing.T) {
	standard, err := load(t, "", nil)
	require.NoError(t, err)
	got, err := load(t, "start_timeout: 0\nsleep_timeout: 0s\nwake_timeout: 0\nstop_grace: 5s\nhold_timeout: 0\nmemory_timeout: 0\nfingerprint_timeout: 0\n", nil,
		"--stop-grace=0", "--starting-grace=0s", "--drain-timeout=0")
	require.NoError(t, err)
	assert.Equal(t, standard, got)
	assert.Positive(t, got.DrainTimeout)
}
