package decide

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return now.Add(d) }

func TestMeanIsThatOfTenSeconds(t *testing.T) {
	var w Window
	assert.Zero(t, w.Mean(now))
	w.Add(now, 0)
	w.Add(after(20*time.Second), 100)
	assert.InDelta(t, 0, w.Mean(after(20*time.Second)), 0)
	assert.InDelta(t, 50, w.Mean(after(25*time.Second)), 0)
	assert.InDelta(t, 100, w.Mean(after(30*time.Second)), 0)
	w.Add(after(30*time.Second), 0)
	assert.InDelta(t, 50, w.Mean(after(35*time.Second)), 0)
	assert.InDelta(t, 50, w.Mean(after(34*time.Second)), 0, "a clock that goes back")
	assert.InDelta(t, 0, w.Mean(after(time.Hour)), 0)
}

func TestMeanOfFirstMomentsIsNotTheirHeight(t *testing.T) {
	var w Window
	w.Add(now, 1000)
	assert.InDelta(t, 100, w.Mean(after(100*time.Millisecond)), 0)
	assert.InDelta(t, 1000, w.Mean(after(time.Second)), 0, "a new controller knows the demand within a second")
	assert.InDelta(t, 1000, w.Mean(after(3*time.Second)), 0)
}

func TestRequestThatNobodySawCountsBriefly(t *testing.T) {
	var w Window
	w.Add(now, 0)
	for range 3 { // it is one request
		w.Ended(after(20 * time.Second))
	}
	w.Add(after(20*time.Second+time.Millisecond), 0)
	assert.InDelta(t, 0.001, w.Mean(after(25*time.Second)), 0.0001)
	peak, known := w.Peak(after(25*time.Second), 15*time.Second)
	assert.Equal(t, 1, peak)
	assert.True(t, known)
	assert.Zero(t, w.Mean(after(31*time.Second)))

	w.Add(after(40*time.Second), 7)
	w.Ended(after(41 * time.Second)) // one of these
	assert.InDelta(t, 1.4, w.Mean(after(42*time.Second)), 0.02)
}

func TestPeakIsTheHighestOfTheDelay(t *testing.T) {
	var w Window
	_, known := w.Peak(now, 0)
	assert.False(t, known)
	w.Add(now, 7)
	w.Add(after(time.Second), 3)
	w.Add(after(2*time.Second), 5)
	w.Add(after(3*time.Second), 0)
	for _, c := range []struct {
		at, delay time.Duration
		peak      int
		known     bool
	}{
		{3 * time.Second, 10 * time.Second, 7, false},
		{10 * time.Second, 10 * time.Second, 7, true},
		{11 * time.Second, 10 * time.Second, 5, true},
		{12 * time.Second, 10 * time.Second, 5, true},
		{13 * time.Second, 10 * time.Second, 0, true},
		{20 * time.Second, 19 * time.Second, 0, false},
		{21 * time.Second, time.Minute, 0, false}, // the delay was edited: what was before is forgotten
		{63 * time.Second, time.Minute, 0, true},
		{63 * time.Second, 0, 0, true},
	} {
		peak, known := w.Peak(after(c.at), c.delay)
		assert.Equal(t, c.peak, peak, "%s of %s", c.at, c.delay)
		assert.Equal(t, c.known, known, "%s of %s", c.at, c.delay)
	}
}

func TestNextIsWhenTheDemandChangesByTimeAlone(t *testing.T) {
	var w Window
	assert.Zero(t, w.Next(now, time.Minute))
	w.Add(now, 0)
	assert.Equal(t, time.Minute, w.Next(now, time.Minute), "then the peak is known")
	w.Add(after(2*time.Minute), 4)
	assert.Equal(t, time.Second, w.Next(after(2*time.Minute), time.Minute), "the mean grows")
	assert.Zero(t, w.Next(after(3*time.Minute), time.Minute))
	w.Add(after(4*time.Minute), 1)
	assert.Equal(t, 30*time.Second, w.Next(after(4*time.Minute+30*time.Second), time.Minute), "the peak ends")
	assert.Zero(t, w.Next(after(6*time.Minute), time.Minute))
}

// TestWindowAgreesWithAllSamples compares a Window with what all samples say.
func TestWindowAgreesWithAllSamples(t *testing.T) {
	type sample struct {
		at     time.Duration
		demand int
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		delay := time.Duration(r.IntN(60)) * time.Second
		var w Window
		var all []sample
		at := time.Duration(0)
		for range 400 {
			s := sample{at, r.IntN(50)}
			all = append(all, s)
			w.Add(after(s.at), s.demand)
			at += time.Duration(1 + r.IntN(int(2*time.Second)))
			peak, sum := s.demand, 0.0
			for n, s := range all {
				end := at
				if n+1 < len(all) {
					end = all[n+1].at
				}
				if end > at-delay {
					peak = max(peak, s.demand)
				}
				if from := max(s.at, at-meanOver); end > from {
					sum += float64(s.demand) * (end - from).Seconds()
				}
			}
			highest, known := w.Peak(after(at), delay)
			require.Equal(t, peak, highest, "seed %d at %s", seed, at)
			require.Equal(t, at >= delay, known)
			if at > meanOver {
				require.InDelta(t, sum/meanOver.Seconds(), w.Mean(after(at)), 1, "seed %d at %s", seed, at)
			}
		}
	}
}

// The demand falls with each sample, so that each was a peak.
func TestWindowStaysSmallAndNeverForgetsAPeak(t *testing.T) {
	var w Window
	const samples = 10_000
	for n := range samples {
		w.Add(after(time.Duration(n)*time.Millisecond), samples-n)
		peak, _ := w.Peak(after(time.Duration(n)*time.Millisecond), time.Second)
		require.GreaterOrEqual(t, peak, min(samples, samples-n+1000))
		require.LessOrEqual(t, len(w.peaks), maxPeaks)
		require.LessOrEqual(t, cap(w.peaks), 2*maxPeaks)
	}
	peak, _ := w.Peak(after(samples*time.Millisecond), time.Second)
	assert.InDelta(t, 1000, peak, 200, "it is not far above either")
}

// The demand is there for a half of the time.
func TestPauseShorterThanTheDelayLowersNothing(t *testing.T) {
	var w Window
	for n := range 60 { // half an hour
		w.Add(after(time.Duration(2*n)*15*time.Second), 80)
		w.Add(after(time.Duration(2*n+1)*15*time.Second), 0)
		peak, _ := w.Peak(after(time.Duration(2*n+2)*15*time.Second-1), 5*time.Minute)
		require.Equal(t, 80, peak)
	}
}
