package guide

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// untried lists the examples that no test tries, and why.
var untried = map[string]string{
	"examples/calls.sh": "the other scripts have its functions",
}

// word is a path as commands and Go strings have it.
var word = regexp.MustCompile(`examples/[\w./-]*\w`)

// wordsOfTests are the examples, and folders of examples, that tests and blocks name.
func wordsOfTests(t *testing.T) map[string]bool {
	t.Helper()
	const root = "../.."
	words := map[string]bool{}
	note := func(text string) {
		for _, w := range word.FindAllString(text, -1) {
			words[w] = true
		}
	}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !strings.HasSuffix(file, "_test.go") || entry.Name() == "examples_test.go" && filepath.Dir(file) == filepath.Join(root, "test/guide"):
			return nil
		}
		text, err := os.ReadFile(file)
		note(string(text))
		return err
	})
	require.NoError(t, err)
	pages, err := Pages(root)
	require.NoError(t, err)
	for _, page := range pages {
		blocks, err := Read(root, page)
		require.NoError(t, err)
		for _, b := range blocks {
			if b.Place != NotRun {
				note(b.Commands)
			}
		}
	}
	return words
}

func TestEachExampleIsTriedByATestOrABlock(t *testing.T) {
	words := wordsOfTests(t)
	require.True(t, words["examples/groups/two-launchers.yaml"])
	err := filepath.WalkDir("../../examples", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel("../..", file)
		tried := words[name] || words[path.Dir(name)]
		assert.NotEqual(t, untried[name] != "", tried, "%s: have a test or a block of the guide try it, or say in untried why none does", name)
		return err
	})
	require.NoError(t, err)
}
