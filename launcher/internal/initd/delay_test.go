package initd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheFirstQuickDeathCostsNoPauseAndLaterOnesDoubleItUpToFiveSeconds(t *testing.T) {
	want := []time.Duration{0, 0, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000}
	for quick, ms := range want {
		require.Equal(t, ms*time.Millisecond, delay(quick), "after %d", quick)
	}
	require.Equal(t, 5*time.Second, delay(1_000_000))
}
