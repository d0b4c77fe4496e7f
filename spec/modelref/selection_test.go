package modelref

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each line was compared with fnmatch.fnmatchcase of Python 3.
func TestAPatternMatchesWhatPythonsFnmatchMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		matches       bool
	}{
		{"*.json", "config.json", true},
		{"*.json", "sub/config.json", true},
		{"*.json", ".hidden.json", true},
		{"*.json", "config.JSON", false},
		{"*.json", "config.json.gz", false},
		{"sub/*", "sub/a/b", true},
		{"**/a", "a", false},
		{"**/a", "x/y/a", true},
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false},
		{"?odel", "model", true},
		{"a?b", "a/b", true},
		{"?", "ü", true},
		{"?", "", false},
		{"model-0000[1-3]*", "model-00002-of-9", true},
		{"model-0000[1-3]*", "model-00004-of-9", false},
		{"[!a]b", "cb", true},
		{"[!a]b", "ab", false},
		{"[]]", "]", true},
		{"[!]]", "]", false},
		{"[!]]", "a", true},
		{"[a-]", "-", true},
		{"[a-c-e]", "d", false},
		{"[a-c-e]", "-", true},
		{"[c-a]", "b", false},
		{"[!c-a]", "b", true},
		{"[", "[", true},
		{"[abc", "[abc", true},
		{"[!", "[!", true},
		{"[]", "[]", true},
		{"[*]", "*", true},
		{"[*]", "a", false},
		{"{a,b}", "a", false},
		{`a\*`, "a*", false},
		{"[!]", "[!]", true},
		{"[]-a]", "^", true},
	} {
		assert.Equal(t, c.matches, Match(c.pattern, c.name), "%q and %q", c.pattern, c.name)
	}
}

func TestASelectionTakesWhatItIncludesAndDoesNotExclude(t *testing.T) {
	s := Selection{Include: []string{"*.json", `sub\`, "*.json"}, Exclude: []string{"sub/x*"}}.Clean()
	assert.Equal(t, Selection{Include: []string{"*.json", "sub/*"}, Exclude: []string{"sub/x*"}}, s)
	for name, takes := range map[string]bool{"a.json": true, "sub/a": true, "sub/x.json": false, "a.bin": false} {
		assert.Equal(t, takes, s.Takes(name), name)
	}
	assert.True(t, Selection{}.Takes("a"))
	assert.False(t, Selection{Exclude: []string{"a"}}.Takes("a"))
	assert.True(t, Selection{Exclude: []string{"a"}}.Takes("b"))
	assert.Equal(t, "--include *.json --include sub/* --exclude sub/x*", s.String())
}

func TestPatternsThatCannotBeAreRefused(t *testing.T) {
	for says, s := range map[string]Selection{
		"is empty":              {Include: []string{""}},
		"names are relative":    {Exclude: []string{"/a"}},
		"a character":           {Include: []string{"a\x1b"}},
		"257 bytes":             {Include: []string{strings.Repeat("a", 257)}},
		"65 patterns":           {Exclude: make65()},
		"has a character that ": {Include: []string{"a\xff"}},
	} {
		require.ErrorContains(t, s.Check(), says)
	}
	require.NoError(t, Selection{Include: []string{"*.json", "sub/"}}.Check())
}

func make65() (all []string) {
	for n := range 65 {
		all = append(all, string(rune('A'+n%26)))
	}
	return all
}

func TestAnEngineNeedsAllButDocumentsAndWeightsThatAreThereOtherwise(t *testing.T) {
	words := strings.Fields
	for name, c := range map[string]struct{ has, leftOut, lacks string }{
		"nothing is left out":                     {"config.json model.safetensors", "", ""},
		"weights of other formats":                {"config.json model.safetensors", "pytorch_model.bin pytorch_model.bin.index.json tf_model.h5 flax_model.msgpack onnx/model.onnx", ""},
		"the older format is enough":              {"config.json pytorch_model.bin", "model.safetensors", ""},
		"one of two parts":                        {"config.json model-1.safetensors", "model-2.safetensors", "model-2.safetensors"},
		"the index of weights":                    {"config.json model-1.safetensors", "model.safetensors.index.json", "model.safetensors.index.json"},
		"no weights":                              {"config.json", "model.safetensors", "model.safetensors"},
		"weights that no engine reads alone":      {"config.json onnx/model.onnx model.onnx", "model.safetensors", "model.safetensors"},
		"one of several quantisations":            {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q8_0.gguf"},
		"the configuration":                       {"model.safetensors", "config.json tokenizer.json", "config.json tokenizer.json"},
		"documents":                               {"config.json model.safetensors", "README.md LICENSE .gitattributes figures/a.png USE_POLICY.md NOTICE.txt", ""},
		"the original beside it":                  {"config.json model.safetensors", "original/consolidated.00.pth original/params.json original/tokenizer.model", ""},
		"the same weights under another name":     {"config.json model.safetensors", "consolidated.safetensors", "consolidated.safetensors"},
		"a folder that is part of the model":      {"config.json model.safetensors modules.json", "1_Pooling/config.json", "1_Pooling/config.json"},
		"a model without weights, and a document": {"tokenizer.json", "README.md", ""},
		"only the folder of another program":      {"onnx/model.onnx original/model.safetensors", "model.safetensors config.json", "config.json model.safetensors"},
	} {
		assert.Equal(t, words(c.lacks), append([]string{}, Lacks(words(c.has), words(c.leftOut))...), name)
	}
}

func TestAVersionThatLacksFilesIsMeantByItsIDAlone(t *testing.T) {
	v := Version{ID: "1234abcd", URI: "hf://org/llama", Revision: "c1", Refs: []string{"main"}, Lacks: true}
	assert.False(t, Name{Model: "org/llama"}.Means(v))
	assert.False(t, Name{Model: "org/llama", Revision: "c1"}.Means(v))
	assert.True(t, Name{Model: "1234abcd"}.Means(v))
}
