package decide

import (
	"slices"
	"time"
)

const (
	// meanOver is how far back the mean of a demand goes.
	meanOver = 10 * time.Second
	// shortestMean keeps the first moments of a demand from counting as if they had lasted.
	shortestMean = time.Second

	tick     = 100 * time.Millisecond
	ticks    = int(meanOver / tick)
	maxPeaks = 64

	// briefly is how long a request counts that began and ended between two calls of Add.
	briefly = 10 * time.Millisecond
)

// Window keeps the demand of a Model over time, in bounded memory. The demand stays the same between
// two calls of Add. The zero Window has not seen any demand yet.
type Window struct {
	began time.Time // when the first demand was added; the other times count from here
	at    time.Duration
	level int
	since time.Duration // from when on the highest demand is known
	// peaks are the demands before the present one, each higher than the one after it.
	peaks []peak
	ended time.Time // of the last call of Ended
	// sums are the demand × nanoseconds in each tick of the last 10 s, by the number of the tick.
	sums  [ticks]int64
	total int64 // of sums
}

// peak is a demand that ended at a time, and counts until another one.
type peak struct {
	demand        int
	ended, counts time.Duration
}

// Add notes that the demand is so high from now on.
func (w *Window) Add(now time.Time, demand int) {
	if w.began.IsZero() {
		w.began, w.level = now, demand
		return
	}
	w.advance(now)
	if demand == w.level {
		return
	}
	for len(w.peaks) > 0 && w.peaks[len(w.peaks)-1].demand <= w.level {
		w.peaks = w.peaks[:len(w.peaks)-1]
	}
	w.peaks = append(w.peaks, peak{w.level, w.at, w.at})
	w.level = demand
	w.merge()
}

// Ended notes that a request ended at a time. If Add was last called with no request, this one began and ended between two
// calls, and counts briefly. Repeated calls with the same time count once; zero: no request has ended.
func (w *Window) Ended(at time.Time) {
	if !at.After(w.ended) {
		return
	}
	w.ended = at
	if w.level == 0 {
		w.Add(at, 1)
		w.Add(at.Add(briefly), 0)
	}
}

// merge keeps the number of peaks bounded: the one goes whose predecessor can count in its place with
// the shortest delay.
func (w *Window) merge() {
	if len(w.peaks) <= maxPeaks {
		return
	}
	delay := func(n int) time.Duration { return w.peaks[n].counts - w.peaks[n-1].ended }
	best := 1
	for n := 2; n < len(w.peaks); n++ {
		if delay(n) < delay(best) {
			best = n
		}
	}
	w.peaks[best-1].counts = w.peaks[best].counts
	w.peaks = slices.Delete(w.peaks, best, best+1)
}

// advance counts the present demand up to a time. A time before the last call counts as that.
func (w *Window) advance(to time.Time) {
	now := to.Sub(w.began)
	if now-w.at >= 2*meanOver { // nothing of the sums is left
		w.at = now - 2*meanOver
	}
	for w.at < now {
		number := int64(w.at / tick)
		end := min(time.Duration(number+1)*tick, now)
		sum := &w.sums[number%int64(ticks)]
		if w.at%tick == 0 { // the tick takes the place of the one 10 s before
			w.total -= *sum
			*sum = 0
		}
		spent := int64(w.level) * int64(end-w.at)
		*sum += spent
		w.total += spent
		w.at = end
	}
}

// Mean returns the mean demand of the last 10 s, or since the first demand was added. It is exact but
// for the tenth of a second in which the 10 s begin.
func (w *Window) Mean(now time.Time) float64 {
	if w.began.IsZero() {
		return 0
	}
	w.advance(now)
	last := w.at % tick // of the sums, as all others are whole
	if last == 0 {
		last = tick
	}
	return float64(w.total) / float64(min(max(w.at, shortestMean), meanOver-tick+last))
}

// Peak returns the highest demand of a time until now. known reports whether the Window has seen all
// of that time.
func (w *Window) Peak(now time.Time, delay time.Duration) (demand int, known bool) {
	if w.began.IsZero() {
		return 0, false
	}
	w.advance(now)
	from := w.at - delay
	known = w.since <= from
	past := 0
	for past < len(w.peaks) && w.peaks[past].counts <= from {
		past++
	}
	if past > 0 {
		w.since = from // what was higher before is not known any more
		w.peaks = slices.Delete(w.peaks, 0, past)
	}
	if len(w.peaks) > 0 {
		return max(w.level, w.peaks[0].demand), known
	}
	return w.level, known
}

// Next returns when the mean or the highest demand will have changed though nothing is added; 0: never.
func (w *Window) Next(now time.Time, delay time.Duration) time.Duration {
	if w.began.IsZero() {
		return 0
	}
	highest, known := w.Peak(now, delay)
	switch {
	case w.Mean(now) != float64(w.level):
		return shortestMean
	case !known:
		return w.since + delay - w.at
	case highest > w.level:
		return w.peaks[0].counts + delay - w.at
	default:
		return 0
	}
}
