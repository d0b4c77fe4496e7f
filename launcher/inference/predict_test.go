package inference

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPredictionIsWithinAFactorOfTwoFromTheSecondTimeOn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var p Predictor
		usual := time.Duration(float64(time.Second) * math.Exp(random.Float64()*6))
		next := func() time.Duration { // by a factor of two between the shortest and the longest
			return time.Duration(float64(usual) * math.Pow(2, random.Float64()))
		}
		p.Observe("m", Wake, next())
		for range 20 {
			took := next()
			predicted := p.RetryAfter("m", Wake, 0, 0)
			require.LessOrEqual(t, predicted, 2*took+time.Second, "rounded up to seconds")
			require.GreaterOrEqual(t, 2*predicted, took)
			p.Observe("m", Wake, took)
		}
	}
}

func TestPredictionFollowsAModelThatHasChanged(t *testing.T) {
	var p Predictor
	for range 10 {
		p.Observe("m", Start, 100*time.Second)
	}
	for range 3 {
		p.Observe("m", Start, 10*time.Second)
	}
	got, ok := p.Remaining("m", Start, 0)
	assert.True(t, ok)
	assert.Equal(t, 10*time.Second, got)
}

func TestRemainingTimeOfATransitionUnderWay(t *testing.T) {
	var p Predictor
	for _, took := range []time.Duration{9 * time.Second, 10 * time.Second, 11 * time.Second, 12 * time.Second, 60 * time.Second} {
		p.Observe("m", Start, took)
	}
	for elapsed, want := range map[time.Duration]time.Duration{
		0: 11 * time.Second, 4 * time.Second: 7 * time.Second, 10 * time.Second: 2 * time.Second,
		20 * time.Second: 40 * time.Second, 70 * time.Second: 70 * time.Second,
	} {
		got, ok := p.Remaining("m", Start, elapsed)
		assert.True(t, ok)
		assert.Equal(t, want, got, elapsed)
	}
	assert.Equal(t, time.Second, p.RetryAfter("m", Start, 11900*time.Millisecond+99*time.Millisecond, 0), "at least a second")
}

func TestFirstTransitionOfAModelIsUnknown(t *testing.T) {
	var p Predictor
	p.Observe("m", Start, time.Minute)
	assert.Equal(t, 7*time.Second, p.RetryAfter("m", Wake, 0, 7*time.Second))
	assert.Equal(t, 7*time.Second, p.RetryAfter("n", Start, 0, 7*time.Second))
	assert.Equal(t, time.Minute, p.RetryAfter("m", Start, 0, 7*time.Second))
	p.Forget("m")
	assert.Equal(t, 7*time.Second, p.RetryAfter("m", Start, 0, 7*time.Second))
}

func TestPredictorIsSafeForConcurrentUse(t *testing.T) {
	var p Predictor
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				p.Observe("m", Swap, time.Second)
				p.Remaining("m", Swap, 0)
				p.Forget("m")
			}
		})
	}
	all.Wait()
}
