package catalogue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDiffTellsWhatAChangeTakes(t *testing.T) {
	const base = `
models:
- name: a
  aliases: [x, y]
  options: org/model --seed 1
  env: {A: "1", B: "2"}
  params: {strip: [p, q], set: {k: {m: 1, n: 2}}, variants: {"a:v": {}}}
- {name: b, args: [x], gpus: [GPU-aaaa, GPU-bbbb]}
`
	edit := func(from, to string) string {
		changed := strings.Replace(base, from, to, 1)
		assert.NotEqual(t, base, changed, from)
		return changed
	}
	same := []Change{{"a", Same, nil}, {"b", Same, nil}}
	a := func(kind Kind, fields ...string) []Change { return []Change{{"a", kind, fields}, {"b", Same, nil}} }
	b := func(kind Kind, fields ...string) []Change { return []Change{{"a", Same, nil}, {"b", kind, fields}} }
	for name, tt := range map[string]struct {
		now  string
		want []Change
	}{
		"nothing":                 {base, same},
		"a comment":               {edit("- name: a", "# about a\n- name: a # a"), same},
		"order of aliases":        {edit("[x, y]", "[y, x]"), same},
		"order of variables":      {edit(`{A: "1", B: "2"}`, `{B: "2", A: "1"}`), same},
		"order of parameters":     {edit("{m: 1, n: 2}", "{n: 2, m: 1}"), same},
		"order of what is strip":  {edit("[p, q]", "[q, p]"), same},
		"blanks of options":       {edit("org/model --seed 1", "'org/model   --seed \"1\" '"), same},
		"options as a list":       {edit("options: org/model --seed 1", "args: [org/model, --seed, 1]"), same},
		"a default that is given": {edit("{name: b,", "{name: b, engine: vllm, restart: on-failure, priority: 0, pinned: false, stop_after: 0, sleep_after: 0, env: {},"), same},
		"options":                 {edit("--seed 1", "--seed 2"), a(Restart, "options")},
		"env":                     {edit(`A: "1"`, `A: "3"`), a(Restart, "env")},
		"engine":                  {edit("{name: b,", "{name: b, engine: llamacpp,"), b(Restart, "engine")},
		"order of GPUs":           {edit("GPU-aaaa, GPU-bbbb", "GPU-bbbb, GPU-aaaa"), b(Restart, "gpus")},
		"aliases":                 {edit("[x, y]", "[x]"), a(InPlace, "aliases")},
		"variants":                {edit(`"a:v"`, `"a:w"`), a(InPlace, "params.variants")},
		"parameters":              {edit("n: 2", "n: 3"), a(InPlace, "params")},
		"restart and in place":    {edit("[x], gpus", "[y], priority: 3, pinned: true, gpus"), b(Restart, "options", "pinned", "priority")},
		"policy":                  {edit("{name: b,", "{name: b, preload: true, sleep_after: 5m, stop_after: 1h, concurrency: 3, start_method: exec, restart: never,"), b(InPlace, "concurrency", "preload", "restart", "sleep_after", "start_method", "stop_after")},
		"another name":            {edit("name: b", "name: c"), []Change{{"b", Removed, nil}, {"a", Same, nil}, {"c", Added, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, Diff(parsed(t, base), parsed(t, tt.now)))
		})
	}
	other := "models:\n- {name: b, args: [x], gpus: [GPU-aaaa, GPU-bbbb]}\n- {name: c, options: x}\n- {name: d, options: x}\n"
	assert.Equal(t, []Change{{"a", Removed, nil}, {"b", Same, nil}, {"c", Added, nil}, {"d", Added, nil}}, Diff(parsed(t, base), parsed(t, other)))
}
