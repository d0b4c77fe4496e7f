package simulation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// number reads a number from the environment.
func number(t *testing.T, name string, standard uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 63)
	require.NoError(t, err, "%s should be a number", name)
	return n
}

// TestNoScheduleBreaksAnInvariant plays the scripts of SEEDS seeds, from FROM on; with
// FIRST in the environment only until one fails.
func TestNoScheduleBreaksAnInvariant(t *testing.T) {
	from, seeds := number(t, "FROM", 1), number(t, "SEEDS", standardSeeds)
	var next, ran, failed atomic.Uint64
	t.Cleanup(func() {
		t.Logf("%d schedules ran from seed %d on, %d failed", ran.Load(), from, failed.Load())
	})
	var shown sync.Mutex
	lane := func(t *testing.T) {
		t.Parallel()
		for {
			seed := from + next.Add(1) - 1
			if seed >= from+seeds {
				return
			}
			s := drawScript(seed)
			out := playWatched(t, s, false)
			ran.Add(1)
			if len(out.wrong) == 0 {
				continue
			}
			if os.Getenv("FIRST") != "" {
				next.Store(seeds) // one is enough
				t.Errorf("seed %d: %s", seed, out.wrong[0])
				return
			}
			if failed.Add(1) > 3 {
				t.Errorf("seed %d: %s", seed, out.wrong[0])
				continue
			}
			shown.Lock()
			t.Errorf("%s", story(t, s, out.wrong[0]))
			shown.Unlock()
		}
	}
	for n := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprintf("lane %d", n), lane)
	}
}

// hangTime is how much time of this machine one script may take: it takes some
// milliseconds. A lock that nobody gives back keeps simulated time from passing.
func hangTime() time.Duration {
	if given, err := time.ParseDuration(os.Getenv("HANG")); err == nil {
		return given
	}
	return 2 * time.Minute
}

// playWatched is play that ends the program with all its stacks when the script hangs,
// and tells what cannot end from what is wrong.
func playWatched(t *testing.T, s script, traced bool) (out played) {
	t.Helper()
	hangs := time.AfterFunc(hangTime(), func() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		panic(fmt.Sprintf("seed %d hangs: a lock is not given back\n%s\n%s", s.seed, s, stacks))
	})
	defer hangs.Stop()
	defer func() {
		if stuck := recover(); stuck != nil {
			out.wrong = append(out.wrong, fmt.Sprintf("%s: %v", nothingIsLeft, stuck))
		}
	}()
	return play(t, s, traced)
}

// replays is how often a script is played before it is believed to go well: what
// happens at one instant may happen in any order.
const replays = 5

// breaks says whether a script breaks the invariant.
func breaks(t *testing.T, s script, invariant string) bool {
	t.Helper()
	for range replays {
		if slices.ContainsFunc(playWatched(t, s, false).wrong, func(wrong string) bool { return strings.HasPrefix(wrong, invariant+":") }) {
			return true
		}
	}
	return false
}

// shorten gives the shortest script that breaks the invariant, as far as leaving out
// one step after the other finds it.
func shorten(t *testing.T, s script, invariant string) script {
	t.Helper()
	for shorter := true; shorter; {
		shorter = false
		for n := len(s.steps) - 1; n >= 0; n-- {
			less := s
			less.steps = slices.Delete(slices.Clone(s.steps), n, n+1)
			if breaks(t, less, invariant) {
				s, shorter = less, true
			}
		}
	}
	return s
}

// story is a failing script, shortened, and what happened.
func story(t *testing.T, s script, wrong string) string {
	t.Helper()
	invariant, _, _ := strings.Cut(wrong, ":")
	short := shorten(t, s, invariant)
	var out played
	for range replays {
		if out = playWatched(t, short, true); len(out.wrong) > 0 {
			break
		}
	}
	text := fmt.Sprintf("seed %d: %s\nof its %d steps these are enough:\n%s\nwhat happened:\n%s\n%s", s.seed, wrong, len(s.steps), short,
		strings.Join(out.trace, "\n"), strings.Join(out.wrong, "\n"))
	if os.Getenv("LOG") != "" {
		text += "\nthe launcher's log:\n" + out.log
	}
	return text
}

// String lists the steps.
func (s script) String() string {
	lines := []string{fmt.Sprintf("budget %+v", s.budget)}
	for _, step := range s.steps {
		lines = append(lines, step.String())
	}
	return strings.Join(lines, "\n")
}

// TestASeedGivesTheSameRun plays seeds twice. What happens at one instant happens in
// any order, and now and then that order tells: so nearly all have to be the same.
func TestASeedGivesTheSameRun(t *testing.T) {
	same := 0
	const seeds = 40
	for seed := range uint64(seeds) {
		s := drawScript(seed + 1)
		if slices.Equal(playWatched(t, s, true).trace, playWatched(t, s, true).trace) {
			same++
		}
	}
	assert.Greater(t, same, seeds/2)
}
