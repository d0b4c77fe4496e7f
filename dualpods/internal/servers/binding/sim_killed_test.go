package binding

import (
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

// simKilling kills the controller once, after the step of a row.
type simKilling struct {
	after   string          // the row; empty: none
	decided map[string]bool // rows that a decision was by
	acted   map[string]bool // those of them whose steps were taken
	killed  bool
	over    bool // the script has come to its end long ago: nobody is killed any more
}

// acted notes that a step was taken, and kills the process before it has noted
// anything of it where it is to be killed after that.
func (inc *incarnation) acted(seen Sight) {
	k := &inc.s.killing
	k.decided[seen.Step.Rule] = true
	if inc.dead || k.over || seen.Err != nil || seen.Step.Do == decide.Nothing || seen.Step.Do == decide.Retry {
		return
	}
	k.acted[seen.Step.Rule] = true
	if k.after == seen.Step.Rule && !k.killed {
		k.killed = true
		inc.s.note("(after the step of the row %q)", k.after)
		inc.kill()
	}
}

// simSeeds are those whose schedules came by each row, the smallest of them.
type simSeeds struct {
	most int // for each row
	mu   sync.Mutex
	all  map[string][]uint64
	// composed are the rows whose seeds are those of the schedule that was composed for them.
	composed map[string]bool
}

func seedsOfRows(most int) *simSeeds {
	return &simSeeds{most: most, all: map[string][]uint64{}, composed: map[string]bool{}}
}

func (k *simSeeds) add(seed uint64, rows map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for row := range rows {
		seeds := append(k.all[row], seed)
		slices.Sort(seeds)
		k.all[row] = seeds[:min(len(seeds), k.most)]
	}
}

// writes are the rows whose steps are writes.
func writes() (rows []string) {
	for _, r := range decide.Rows(decide.Tables) {
		if r.Do != decide.Nothing && r.Do != decide.Retry {
			rows = append(rows, r.Name)
		}
	}
	return rows
}

// addComposed plays the schedules that were composed for rows which no drawn one came by.
func (k *simSeeds) addComposed(t *testing.T) {
	for _, row := range writes() {
		script := composed[row]
		if len(k.all[row]) > 0 || script == nil {
			continue
		}
		k.composed[row] = true
		for _, seed := range seedsOfComposed {
			if simulate(t, seed, script, decide.Tables, false).acted[row] {
				k.add(seed, map[string]bool{row: true})
			}
			if len(k.all[row]) == k.most {
				break
			}
		}
	}
}

// script is what a schedule of a row plays.
func (k *simSeeds) script(row string, seed uint64) []simEvent {
	if k.composed[row] {
		return composed[row]
	}
	return drawScript(seed)
}

// killAfterEach plays some of the schedules again by which a row's step was taken: the
// controller is killed right after it. Where all were drawn that are drawn
// without the race detector, they or the composed ones came by each row.
func (k *simSeeds) killAfterEach(t *testing.T, seeds uint64) {
	k.addComposed(t)
	rows := slices.Sorted(maps.Keys(k.all))
	var missed []string
	for _, row := range writes() {
		if !slices.Contains(rows, row) {
			missed = append(missed, row)
		}
	}
	t.Logf("the controller is killed after the steps of %d rows, in up to %d schedules each; no schedule came by %q", len(rows), simKilled, missed)
	if seeds >= 1000 {
		assert.Empty(t, missed, "rows that no schedule comes by: have simChances or simThemes bring them about")
	}
	var mu sync.Mutex
	var unkilled []string
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row, func(t *testing.T) {
				t.Parallel()
				if !k.killAfter(t, row) {
					mu.Lock()
					defer mu.Unlock()
					unkilled = append(unkilled, row)
				}
			})
		}
	})
	t.Logf("no replay came by the rows %q again", unkilled)
	assert.LessOrEqual(t, len(unkilled), simUnkilled, "rows that no replay of their schedules came by")
}

// What happens at one instant happens in any order, so that a replay need not come by
// a row that its schedule came by.
const (
	simReplays  = 20 // of a schedule, until one comes by the row
	simUnkilled = 3  // rows that this may leave out
)

// killAfter plays the schedules of a row again, and says whether one came by the row.
func (k *simSeeds) killAfter(t *testing.T, row string) (killed bool) {
	for _, seed := range k.all[row] {
		script := k.script(row, seed)
		for range simReplays {
			out := simulateKilled(t, seed, script, decide.Tables, false, row)
			if len(out.wrong) > 0 {
				t.Errorf("killed after the step of the row %q: %s", row, story(t, seed, script, out.wrong, row))
			}
			if out.killed {
				killed = true
				break
			}
		}
	}
	return killed
}
