package chart

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// tests are the names of all tests of the repository.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	all, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			all[string(found[1])] = true
		}
		return err
	}))
	return all
}

func TestEachRowOfTheTroubleshootingTableIsShownByATest(t *testing.T) {
	text, err := os.ReadFile(root + "/spec/guide/troubleshooting.md")
	require.NoError(t, err)
	known, rows := tests(t), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[0]) == "symptom" {
			continue
		}
		rows++
		require.Len(t, cells, 4, line)
		for name := range strings.SplitSeq(cells[3], ",") {
			name = strings.Trim(strings.TrimSpace(name), "`")
			assert.True(t, known[name], "no test is named %s: %s", name, line)
		}
	}
	assert.Positive(t, rows)
	for _, document := range []string{root + "/README.md", "templates/NOTES.txt"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		assert.Contains(t, string(text), "spec/guide/troubleshooting.md", document)
	}
}

func TestEachTestAndFileOfTheTableOfRowsIsThere(t *testing.T) {
	text, err := os.ReadFile(root + "/spec/rows.md")
	require.NoError(t, err)
	known := tests(t)
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1)
	assert.NotEmpty(t, named)
	for _, name := range named {
		assert.True(t, known[name], "no test is named %s", name)
	}
	for _, found := range regexp.MustCompile("`((?:launcher|dualpods|spec|test|deploy)/[\\w./-]+)`").FindAllSubmatch(text, -1) {
		_, err := os.Stat(filepath.Join(root, string(found[1])))
		assert.NoError(t, err)
	}
	files := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		files[filepath.Base(path)] = true
		return err
	}))
	for _, name := range regexp.MustCompile(`\b[a-z]\w*_test\.go\b`).FindAllString(string(text), -1) {
		assert.True(t, files[name], "no file is named %s", name)
	}
}

// ours are the metrics in a text, as their programs have them: without what a
// histogram adds.
func ours(text string) []string {
	all := regexp.MustCompile(`\bhotseat_\w+`).FindAllString(text, -1)
	for i, name := range all {
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, part)
		}
		all[i] = name
	}
	return all
}

func TestTheDashboardAsksForMetricsThatThereAre(t *testing.T) {
	listed, err := os.ReadFile(root + "/spec/metrics.md") // which tests compare with the programs
	require.NoError(t, err)
	labels := map[string]string{} // of each metric
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\|([^|]*)\\|").FindAllSubmatch(listed, -1) {
		labels[string(row[1])] = string(row[2])
	}
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	text, err := os.ReadFile("dashboards/hotseat.json")
	require.NoError(t, err)
	var dashboard struct {
		Title  string
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	require.NoError(t, decoder.Decode(&dashboard))
	assert.NotEmpty(t, dashboard.UID)
	asked := 0
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			names := ours(target.Expr)
			assert.NotEmpty(t, names, "%s asks for nothing of ours: %s", panel.Title, target.Expr)
			for _, name := range names {
				has, ok := labels[name]
				assert.True(t, ok, "%s asks for %s, which nothing exports", panel.Title, name)
				for _, group := range by.FindAllStringSubmatch(target.Expr, -1) {
					for label := range strings.SplitSeq(group[1], ", ") {
						assert.Contains(t, has+" le pod instance", label, "%s groups %s by a label that it does not have", panel.Title, name)
					}
				}
				asked++
			}
		}
	}
	assert.Positive(t, asked)
}
