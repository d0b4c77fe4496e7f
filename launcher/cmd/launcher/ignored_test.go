package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServeWarnsOfAVariableThatIsMisspelt(t *testing.T) {
	t.Setenv("HOTSEAT_STOPGRACE", "1s")
	t.Setenv("HOTSEAT_STOP_GRACE", "2s")
	d := startDaemon(t)
	require.Contains(t, d.log.text(), "level=WARN msg=\"the environment variable HOTSEAT_STOPGRACE is no setting and is ignored: did you mean HOTSEAT_STOP_GRACE?\"")
	require.NotContains(t, d.log.text(), "HOTSEAT_STOP_GRACE is no setting")
}
