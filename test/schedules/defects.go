package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	All  []Defect
}

// place finds the one file in which the text of an edit stands, once.
func (d *Defects) place(t *testing.T, e Edit) string {
	t.Helper()
	var found []string
	for _, dir := range d.Dirs {
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for range strings.Count(string(text), e.Old) {
				found = append(found, path)
			}
			return err
		}))
	}
	require.Len(t, found, 1, "this text should stand in one place of the code; where the code has changed, change the defect:\n%s", e.Old)
	return found[0]
}

// CanBeBrought fails where an edit does not fit the code any more.
func (d *Defects) CanBeBrought(t *testing.T) {
	t.Helper()
	for _, one := range d.All {
		for _, e := range one.Edits {
			d.place(t, e)
		}
	}
}

// overlay writes the files of a defect, and the list of them for the go command.
func (d *Defects) overlay(t *testing.T, one Defect, dir string) (list string) {
	t.Helper()
	replaced := map[string]string{}
	for _, e := range one.Edits {
		path, err := filepath.Abs(d.place(t, e))
		require.NoError(t, err)
		from := path
		if replaced[path] != "" {
			from = replaced[path]
		}
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replaced)))
		require.NoError(t, os.WriteFile(replaced[path], []byte(strings.Replace(string(text), e.Old, e.New, 1)), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	list = filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, text, 0o600))
	return list
}

// Find builds the simulation of this folder with each defect, and plays seeds until one
// breaks. SEEDS bounds them, DEFECT is a part of the names of those that are looked for.
func (d *Defects) Find(t *testing.T) {
	t.Helper()
	seeds := Number(t, "SEEDS", 20_000)
	only := regexp.MustCompile(os.Getenv("DEFECT"))
	for _, one := range d.All {
		if only.MatchString(one.Name) {
			t.Run(one.Name, func(t *testing.T) { d.find(t, one, seeds) })
		}
	}
}

var firstBroken = regexp.MustCompile(`(?m)^\s*\w+\.go:\d+: seed (\d+): ([^:\n]*)|seed (\d+) (hangs: [^\n]*)`)

func (d *Defects) find(t *testing.T, one Defect, seeds uint64) {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
	defer stop()
	program := filepath.Join(dir, "simulation.test")
	built, err := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-overlay", d.overlay(t, one, dir), "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	play := exec.CommandContext(ctx, program, "-test.run", "NoSchedule", "-test.timeout", "0")
	play.Env = append(os.Environ(), fmt.Sprintf("SEEDS=%d", seeds), "FROM=1", "FIRST=1", "HANG=30s")
	output, err := play.CombinedOutput()
	broken := firstBroken.FindSubmatch(output)
	if !assert.Error(t, err, "%d schedules went well", seeds) || !assert.NotNil(t, broken, "%s", output) {
		return
	}
	t.Logf("| %s | %s%s | %s%s |", one.Name, broken[1], broken[3], broken[2], broken[4])
}
