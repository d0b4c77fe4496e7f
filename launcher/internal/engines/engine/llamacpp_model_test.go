package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A version of the store that leaves files out is enough for llama-server if it has one model whole.
func TestLlamaNeedsOneWholeModelOfAVersion(t *testing.T) {
	q4, q8 := "m-Q4_K_M.gguf", "m-Q8_0.gguf"
	first, second, other := "big/m-00001-of-00002.gguf", "big/m-00002-of-00002.gguf", "big/m-00002-of-00003.gguf"
	for name, c := range map[string]struct {
		pick         string
		has, leftOut []string
		lacks        []string
	}{
		"one of two models":               {"", []string{q4}, []string{q8, "config.json"}, nil},
		"the one that is picked":          {q4, []string{q4}, []string{q8}, nil},
		"another one than is picked":      {q8, []string{q4}, []string{q8, "config.json"}, []string{q8, "config.json"}},
		"both parts":                      {"", []string{first, second}, []string{q4, other}, nil},
		"the first part alone":            {"", []string{first}, []string{q4, second, other}, []string{second}},
		"the second part alone":           {"", []string{second}, []string{first}, []string{first}},
		"a projector and no model":        {"", []string{"mmproj-F16.gguf"}, []string{q4}, []string{q4}},
		"a model for other engines alone": {"", []string{"model.safetensors", "config.json"}, []string{q4}, []string{q4}},
	} {
		t.Run(name, func(t *testing.T) {
			options := "hf://org/name"
			if c.pick != "" {
				options += " --hf-file " + c.pick
			}
			plan, err := NewLlamaCpp(LlamaCppOptions{}).Plan(Request{Options: &options})
			require.NoError(t, err)
			assert.Equal(t, c.lacks, plan.Lacks(c.has, c.leftOut))
		})
	}
	plan, err := NewVLLM(VLLMOptions{}).Plan(Request{Options: new("hf://org/name")})
	require.NoError(t, err)
	assert.Equal(t, []string{"config.json", q8}, plan.Lacks([]string{q4}, []string{q8, "config.json"}), "vLLM needs the rest")
}
