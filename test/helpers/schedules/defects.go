package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Defect is something that was wrong once, or a rule that is missing, and what brings
// it about. What mends it stands in production code alone: the edits are made to a copy.
type Defect struct {
	Name  string
	Edits []Edit
	Test  string // a part of the name of the test whose schedules show it; empty: as Defects says
}

// In has a defect be looked for by the schedules of a test, by a part of its name.
func (d Defect) In(test string) Defect {
	d.Test = test
	return d
}

// Edit is a text that stands in one place of the code, and what takes its place.
type Edit struct{ Old, New string }

// NewDefect makes one of its edits: a text, what takes its place, the next text, and so on.
func NewDefect(name string, texts ...string) Defect {
	d := Defect{Name: name}
	for pair := range slices.Chunk(texts, 2) {
		d.Edits = append(d.Edits, Edit{Old: pair[0], New: pair[1]})
	}
	return d
}

// Defects are those of the code under some folders.
type Defects struct {
	Dirs []string // from that of the simulation
	Test string   // a part of the name of the test whose schedules show the defects; empty: NoSchedule
	All  []Defect

	texts map[string]string // of the code, by its files' paths; nil: it was not read yet
}

// read reads the code, but for tests.
func (d *Defects) read(t *testing.T) {
	t.Helper()
	d.texts = map[string]string{}
	for _, dir := range d.Dirs {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			d.texts[path] = string(text)
			return err
		}))
	}
}

// place finds the one file in which the text of an edit stands, once.
func (d *Defects) place(t *testing.T, e Edit) string {
	t.Helper()
	if d.texts == nil {
		d.read(t)
	}
	var found []string
	for path, text := range d.texts {
		for range strings.Count(text, e.Old) {
			found = append(found, path)
		}
	}
	require.Len(t, found, 1, "this text should stand in one place of the code; where the code has changed, change the defect:\n%s", e.Old)
	return found[0]
}

// CanBeBrought fails where an edit does not fit the code any more, or gives code that
// cannot be compiled, and where a seed is known of a defect that there is not.
func (d *Defects) CanBeBrought(t *testing.T) {
	t.Helper()
	c, err := newChecker(d.Dirs)
	require.NoError(t, err)
	for _, one := range d.All {
		assert.NoError(t, c.check(d.edited(t, one)), one.Name)
	}
	for name := range readKnown(t, knownFile) {
		assert.True(t, d.has(name), "%s knows a seed of %q, and there is no such defect (WRITE=1 leaves it out)", knownFile, name)
	}
}

func (d *Defects) has(name string) bool {
	return slices.ContainsFunc(d.All, func(one Defect) bool { return one.Name == name })
}

// edited is the texts of the files that a defect changes, by their paths.
func (d *Defects) edited(t *testing.T, one Defect) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range one.Edits {
		path, err := filepath.Abs(d.place(t, e))
		require.NoError(t, err)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			texts[path] = string(text)
		}
		texts[path] = strings.Replace(texts[path], e.Old, e.New, 1)
	}
	return texts
}

// overlay writes the files of a defect, and the list of them for the go command.
func (d *Defects) overlay(t *testing.T, one Defect, dir string) (list string) {
	t.Helper()
	replaced := map[string]string{}
	for path, text := range d.edited(t, one) {
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		require.NoError(t, os.WriteFile(replaced[path], []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	list = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, text, 0o600))
	return list
}

// Find builds the simulation of this folder with each defect, and plays seeds until one
// breaks that goes well without the defect: first the known one, then from 1 on. SEEDS bounds
// them, DEFECT is a part of the names of those that are looked for. With WRITE in the
// environment the seeds that were found are known the next time. It takes minutes, so it skips the
// test without HOTSEAT_TEST_LONG.
func (d *Defects) Find(t *testing.T) {
	t.Helper()
	if os.Getenv("HOTSEAT_TEST_LONG") == "" {
		t.Skip("NOT TESTED: THIS TAKES MINUTES, AND make test-sim-defects RUNS IT")
	}
	seeds := Number(t, "SEEDS", 20_000)
	only := regexp.MustCompile(os.Getenv("DEFECT"))
	if !slices.ContainsFunc(d.All, func(one Defect) bool { return only.MatchString(one.Name) }) {
		return
	}
	whole, known := built(t.Context(), t, t.TempDir()), readKnown(t, knownFile)
	for _, one := range d.All {
		if only.MatchString(one.Name) {
			t.Run(one.Name, func(t *testing.T) {
				if seed := d.find(t, one, known[one.Name], seeds, whole); seed > 0 {
					known[one.Name] = seed
				}
			})
		}
	}
	if os.Getenv("WRITE") != "" {
		d.writeKnown(t, knownFile, known)
	}
}

// searchTime is when a search ends at the latest. It is long, as the machine may be busy with
// other tests: SEEDS ends a search that finds nothing.
const searchTime = 6 * time.Hour

var firstBroken = regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: seed (\d+): ([^:\n]*)|seed (\d+) (hangs: [^\n]*)`)

// find returns the seed that shows a defect; 0: none does.
func (d *Defects) find(t *testing.T, one Defect, known, seeds uint64, whole string) uint64 {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), searchTime)
	defer stop()
	program := built(ctx, t, dir, "-overlay", d.overlay(t, one, dir))
	var output []byte
	var err error
	test := cmp.Or(one.Test, d.Test, "NoSchedule")
	if known > 0 {
		if output, err = playIn(ctx, program, test, known, 1, severalTimes, "-test.failfast"); err == nil {
			t.Logf("seed %d of %s does not show this defect any more; the search begins anew (WRITE=1 keeps what it finds)", known, knownFile)
		}
	}
	if err == nil {
		output, err = playIn(ctx, program, test, 1, seeds)
	}
	broken := firstBroken.FindSubmatch(output)
	if !assert.Error(t, err, "%d schedules went well", seeds) || !assert.NotNil(t, broken, "%s", output) {
		return 0
	}
	found := string(broken[1]) + string(broken[3])
	t.Logf("| %s | %s | %s%s |", one.Name, found, broken[2], broken[4])
	seed, err := strconv.ParseUint(found, 10, 63)
	require.NoError(t, err)
	output, err = playIn(ctx, whole, test, seed, 1, severalTimes)
	if !assert.NoError(t, err, "seed %d breaks without the defect as well:\n%s", seed, output) {
		return 0
	}
	return seed
}

// built builds the simulation of this folder in another one.
func built(ctx context.Context, t *testing.T, dir string, flags ...string) (program string) {
	t.Helper()
	program = filepath.Join(dir, "simulation.test")
	args := append([]string{"test", "-c", "-ldflags=-s -w", "-o", program}, flags...)
	said, err := exec.CommandContext(ctx, "go", append(args, ".")...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return program
}

// severalTimes has one schedule be played again and again: what happens at one instant may happen
// in any order.
const severalTimes = "-test.count=5"

// playIn plays schedules until one breaks, which is its error.
func playIn(ctx context.Context, program, test string, from, seeds uint64, flags ...string) (output []byte, err error) {
	play := exec.CommandContext(ctx, program, append(flags, "-test.run", test, "-test.timeout", "0")...)
	play.Env = append(os.Environ(), fmt.Sprintf("SEEDS=%d", seeds), fmt.Sprintf("FROM=%d", from), "FIRST=1", "HANG=30s")
	return play.CombinedOutput()
}
