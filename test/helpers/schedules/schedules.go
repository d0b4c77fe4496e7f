// Package schedules plays what seeds draw, for the simulations of the launcher's
// core and of the controller: which seeds is said by the environment, how many
// ran and how many failed is told, and what fails is shortened.
//
//	SEEDS=100000 FROM=1 FIRST=1 go test -v -timeout 0 -run NoSchedule ./dualpods/internal/servers/binding
package schedules

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Number reads a number from the environment; standard where there is none.
func Number(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s should be a number, and is %q", name, text)
	}
	return n
}

// Range is the seeds to play.
type Range struct{ From, Seeds uint64 }

// FromEnvironment is SEEDS seeds, or the standard number of them, from FROM on,
// or from 1.
func FromEnvironment(t *testing.T, standard uint64) Range {
	t.Helper()
	return Range{From: Number(t, "FROM", 1), Seeds: Number(t, "SEEDS", standard)}
}

const (
	toldWhole  = 3 // failures that are shortened and told whole; of the others the first line is
	toldAfter  = time.Minute
	firstAlone = "FIRST" // variable that ends the run with its first failure
)

// Play plays each seed of the range, several at once, and fails for each of
// which play says what is wrong. story tells of a failure whole; it is called
// for one at a time. How many ran is told each minute and at the end.
func Play(t *testing.T, r Range, play func(t *testing.T, seed uint64) (wrong []string), story func(t *testing.T, seed uint64, wrong []string) string) {
	t.Helper()
	var next, ran, failed atomic.Uint64
	var telling sync.Mutex
	began, last := time.Now(), time.Now()
	tell := func() {
		t.Logf("%d of %d schedules ran from seed %d on, in %s, %d failed", ran.Load(), r.Seeds, r.From, time.Since(began).Round(time.Second), failed.Load())
	}
	t.Cleanup(tell)
	tellNow := func() {
		telling.Lock()
		defer telling.Unlock()
		if time.Since(last) >= toldAfter {
			last = time.Now()
			tell()
		}
	}
	var shown sync.Mutex
	lane := func(t *testing.T) {
		t.Parallel()
		for {
			n := next.Add(1) - 1
			if n >= r.Seeds {
				return
			}
			seed := r.From + n
			wrong := play(t, seed)
			ran.Add(1)
			tellNow()
			if len(wrong) == 0 {
				continue
			}
			if os.Getenv(firstAlone) != "" {
				next.Store(r.Seeds)
			}
			if failed.Add(1) > toldWhole {
				t.Errorf("seed %d: %s", seed, wrong[0])
				continue
			}
			shown.Lock()
			t.Errorf("%s", story(t, seed, wrong))
			shown.Unlock()
		}
	}
	for n := range 2 * runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprintf("lane %d", n), lane)
	}
}

// Shorten leaves out one step after the other, the last ones first, as long as
// what is left still breaks.
func Shorten[S any](steps []S, breaks func([]S) bool) []S {
	for shorter := true; shorter; {
		shorter = false
		for n := len(steps) - 1; n >= 0; n-- {
			less := slices.Delete(slices.Clone(steps), n, n+1)
			if len(less) > 0 && breaks(less) {
				steps, shorter = less, true
			}
		}
	}
	return steps
}
