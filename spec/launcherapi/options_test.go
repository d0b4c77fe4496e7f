package launcherapi_test

import (
	"strings"
	"testing"

	"github.com/kballard/go-shellquote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestOptionsAreSplitByShellRulesButForWordsOfJSON(t *testing.T) {
	for options, want := range map[string][]string{
		``:                                    {},
		"m \\\n{\"a\":1} \\\n --b [2]":        {"m", `{"a":1}`, "--b", "[2]"},
		"m\\\n{\"a\":1}":                      {"m{a:1}"},
		`m -tp 2`:                             {"m", "-tp", "2"},
		`m --hf-overrides {"a":"b"} --seed 1`: {"m", "--hf-overrides", `{"a":"b"}`, "--seed", "1"},
		`m --hf-overrides={"a":"b'c"}`:        {"m", `--hf-overrides={"a":"b'c"}`},
		`{"a":1}`:                             {`{"a":1}`},
		`--allowed-origins ["*"] m`:           {"--allowed-origins", `["*"]`, "m"},
		"m\t[\"a\"]\n--x":                     {"m", `["a"]`, "--x"},
		`m {"a":"b\\c\"d"}`:                   {"m", `{"a":"b\\c\"d"}`},
		`m '{"a": "b"}'`:                      {"m", `{"a": "b"}`},
		`m "{\"a\": \"b\"}"`:                  {"m", `{"a": "b"}`},
		`m --x='{"a": "b"}'`:                  {"m", `--x={"a": "b"}`},
		`m {"a": "b"}`:                        {"m", "{a:", "b}"}, // a blank ends the word, so shell rules hold
		`m {"a":"b"`:                          {"m", "{a:b"},      // no JSON
		`m {"a":"b"}x`:                        {"m", "{a:b}x"},
		`m x{"a":"b"}`:                        {"m", "x{a:b}"},
		`m '--x {"a":"b"} y'`:                 {"m", `--x {"a":"b"} y`}, // within quotes no word begins
		`m "--x {} [1]"`:                      {"m", `--x {} [1]`},
		`m a\ {"b":1}`:                        {"m", `a {b:1}`}, // the blank is part of a word
		`m a\\ {"b":1}`:                       {"m", `a\`, `{"b":1}`},
		`m it\'s {"b":1}`:                     {"m", "it's", `{"b":1}`},
		`m "1" "two"`:                         {"m", "1", "two"},
		`m --a=b={"c":1}`:                     {"m", "--a=b={c:1}"},
		`m --chat-template "{{ x }}" --cc {"mode":3}`: {"m", "--chat-template", "{{ x }}", "--cc", `{"mode":3}`},
	} {
		got, err := launcherapi.SplitOptions(options)
		require.NoError(t, err, options)
		assert.Equal(t, want, got, options)
	}
	for _, options := range []string{`m 'x`, `m "x`, `m x\`, `m '{"a":1}`, `m "{}`} {
		_, err := launcherapi.SplitOptions(options)
		assert.Error(t, err, options)
	}
}

// FuzzSplitOptions holds the splitting against that of a shell: without a word
// of JSON there is no difference, and with one it alone is different.
func FuzzSplitOptions(f *testing.F) {
	f.Add(`org/model -tp 2 --served-model-name "a b" --x='{"a": "b"}' it\'s`)
	f.Add(`m {"a":"b"} 'x {"y":1}' "[1]" \{"a":1} --x=[]`)
	f.Fuzz(func(t *testing.T, options string) {
		got, err := launcherapi.SplitOptions(options)
		plain, plainErr := shellquote.Split(options)
		if !strings.ContainsAny(options, "{[") {
			assert.Equal(t, plain, got)
			assert.Equal(t, plainErr, err)
		}
		if err != nil {
			return
		}
		again, err := launcherapi.SplitOptions(shellquote.Join(got...))
		require.NoError(t, err)
		assert.Equal(t, len(got), len(again))
	})
}
