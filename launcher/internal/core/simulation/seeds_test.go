package simulation

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/test/helpers/schedules"
)

// TestNoScheduleBreaksAnInvariant plays the scripts of SEEDS seeds, from FROM on; with
// FIRST in the environment only until one fails.
func TestNoScheduleBreaksAnInvariant(t *testing.T) {
	schedules.Play(t, schedules.FromEnvironment(t, standardSeeds),
		func(t *testing.T, seed uint64) []string { return playWatched(t, drawScript(seed), false).wrong },
		func(t *testing.T, seed uint64, wrong []string) string { return story(t, drawScript(seed), wrong[0]) })
}

// hangTime is how much time of this machine one script may take: it takes some
// milliseconds. A lock that nobody gives back keeps simulated time from passing. A script
// may take longer while the program gets no processor, see [schedules.Watch].
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
	ended := schedules.Watch(hangTime(), func() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		panic(fmt.Sprintf("seed %d hangs: a lock is not given back\n%s\n%s", s.seed, s, stacks))
	})
	defer ended()
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

// story is a failing script, shortened, and what happened.
func story(t *testing.T, s script, wrong string) string {
	t.Helper()
	invariant, _, _ := strings.Cut(wrong, ":")
	short := s
	if os.Getenv("FIRST") == "" { // else somebody wants to know only whether one fails
		short.steps = schedules.Shorten(s.steps, func(steps []step) bool {
			less := s
			less.steps = steps
			return breaks(t, less, invariant)
		})
	}
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
	const seeds = min(40, standardSeeds)
	for seed := range uint64(seeds) {
		s := drawScript(seed + 1)
		if slices.Equal(playWatched(t, s, true).trace, playWatched(t, s, true).trace) {
			same++
		}
	}
	assert.Greater(t, same, seeds/2)
}
