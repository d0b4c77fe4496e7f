package initd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePauseBeforeAServeThatNeverBecameReadyGrowsToASecondAndNoFurther(t *testing.T) {
	want := []time.Duration{0, 100, 200, 400, 800, 1000, 1000, 1000}
	for unready, ms := range want {
		require.Equal(t, ms*time.Millisecond, delay(unready), "after %d", unready)
	}
	require.Equal(t, time.Second, delay(1_000_000))
}
