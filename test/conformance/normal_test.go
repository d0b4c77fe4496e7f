package conformance

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// accepted is what may differ between the stand-in and real vLLM, or from one
// run to the next, wherever a field of that name stands. What is left of the
// value is its kind, so that a string in place of a number is still seen.
var accepted = map[string]string{
	"created":               "the time",
	"created_at":            "the time",
	"text":                  "the words are the model's",
	"content":               "the words are the model's",
	"prompt":                "the words are the tokenizer's",
	"tokens":                "the numbers are the tokenizer's",
	"count":                 "the numbers are the tokenizer's",
	"prompt_tokens":         "the numbers are the tokenizer's",
	"input_tokens":          "the numbers are the tokenizer's",
	"original_input_tokens": "the numbers are the tokenizer's",
}

// shapes are the texts that may differ within a string.
var shapes = []struct {
	re *regexp.Regexp
	as string
}{
	{regexp.MustCompile(`([-_])[0-9a-f]{16}\b`), "${1}<id>"},
	{regexp.MustCompile(`\bvllm-0\.30\.0-[0-9a-f]{8}\b`), "<fingerprint>"}, // of the settings
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
}

// plain leaves out of a text what may differ.
func (e *engine) plain(text string) string {
	text = strings.ReplaceAll(text, e.model, "<model>")
	for _, s := range shapes {
		text = s.re.ReplaceAllString(text, s.as)
	}
	return text
}

// normal leaves out of a JSON value what may differ. key is the field that it
// stands in.
func (e *engine) normal(v any, key string) any {
	if accepted[key] != "" {
		if kept, ok := kindOf(v); ok {
			return kept
		}
	}
	switch v := v.(type) {
	case map[string]any:
		total(v, "total_tokens", "prompt_tokens", "completion_tokens")
		total(v, "total_tokens", "input_tokens", "output_tokens")
		cutShort(v)
		for k := range v {
			v[k] = e.normal(v[k], k)
		}
		return v
	case []any:
		for i := range v {
			v[i] = e.normal(v[i], "")
		}
		return v
	case string:
		return e.plain(v)
	}
	return v
}

// kindOf is what stands in place of an accepted value. Objects, and lists that
// are not of numbers, stay.
func kindOf(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return "<text>", true
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err != nil {
			return "<number>", true
		}
		return "<integer>", true
	case []any:
		for _, item := range v {
			if kept, _ := kindOf(item); kept != "<integer>" {
				return nil, false
			}
		}
		return "<integers>", true
	}
	return nil, false
}

// total writes a sum in place of a number that is one.
func total(v map[string]any, sum, a, b string) {
	number := func(k string) int64 {
		n, ok := v[k].(json.Number)
		if !ok {
			return -1
		}
		i, _ := n.Int64()
		return i
	}
	if number(a) >= 0 && number(b) >= 0 && number(sum) == number(a)+number(b) {
		v[sum] = "<" + a + " + " + b + ">"
	}
}

// cutShort leaves out the length that an answer had reached when a sleep cut it,
// or when an event of a stream told it: it depends on the moment.
func cutShort(v map[string]any) {
	choices, _ := v["choices"].([]any)
	usage, _ := v["usage"].(map[string]any)
	if len(choices) != 1 || usage == nil {
		return
	}
	choice, _ := choices[0].(map[string]any)
	if finish := choice["finish_reason"]; finish == nil || finish == "abort" {
		total(usage, "total_tokens", "prompt_tokens", "completion_tokens")
		usage["completion_tokens"] = "<integer>"
	}
}
