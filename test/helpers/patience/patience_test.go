package patience

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBoundsGrowWithSlownessWithinLimits(t *testing.T) {
	for slower, want := range map[float64]time.Duration{
		0: time.Minute, 0.5: time.Minute, 1: time.Minute, 1.5: 90 * time.Second, slowest: slowest * time.Minute, 1000: slowest * time.Minute,
	} {
		assert.Equal(t, want, scaled(time.Minute, slower), "a machine that is %v times slower", slower)
	}
}

func TestWaitsAreNeverShorterThanUsual(t *testing.T) {
	assert.GreaterOrEqual(t, Wait(), usual)
	assert.GreaterOrEqual(t, LongWait(), long)
	assert.Equal(t, Wait(), Wait(), "the machine is measured once")
}

func TestMeasureReadsRealTimeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		assert.Positive(t, measure())
		assert.Zero(t, time.Since(began), "no simulated time passes")
	})
}
