package engine

import (
	"strings"
	"testing"

	"github.com/kballard/go-shellquote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		got, err := SplitOptions(options)
		require.NoError(t, err, options)
		assert.Equal(t, want, got, options)
	}
	for _, options := range []string{`m 'x`, `m "x`, `m x\`, `m '{"a":1}`, `m "{}`} {
		_, err := SplitOptions(options)
		assert.Error(t, err, options)
	}
}

func TestWordsOfJSONReachTheEngineAsTheyStand(t *testing.T) {
	p, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new(`m --hf-overrides {"rope_scaling":{"factor":2}} --allowed-origins=["*"]`)})
	require.NoError(t, err)
	assert.Equal(t, []string{"--hf-overrides", `{"rope_scaling":{"factor":2}}`, `--allowed-origins=["*"]`}, p.Argv(testHost, testPort)[6:])
}

// FuzzSplitOptions holds the splitting against that of a shell: without a word
// of JSON there is no difference, and with one it alone is different.
func FuzzSplitOptions(f *testing.F) {
	for _, tt := range plans {
		if tt.Options != nil {
			f.Add(*tt.Options)
		}
	}
	f.Add(`m {"a":"b"} 'x {"y":1}' "[1]" \{"a":1} --x=[]`)
	f.Fuzz(func(t *testing.T, options string) {
		got, err := SplitOptions(options)
		plain, plainErr := shellquote.Split(options)
		if !strings.ContainsAny(options, "{[") {
			assert.Equal(t, plain, got)
			assert.Equal(t, plainErr, err)
		}
		if err != nil {
			return
		}
		again, err := SplitOptions(shellquote.Join(got...))
		require.NoError(t, err)
		assert.Equal(t, len(got), len(again))
	})
}
