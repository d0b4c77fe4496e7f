package catalogue

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/inference"
)

func TestNamesMeanModelsOrSelectors(t *testing.T) {
	c := parsed(t, whole)
	params := func(strip []string, set ...string) inference.Params {
		p := inference.Params{Strip: strip, Set: map[string]json.RawMessage{}}
		for i := 0; i < len(set); i += 2 {
			p.Set[set[i]] = json.RawMessage(set[i+1])
		}
		return p
	}
	const kw = `{"deep":{"n":1e3,"nothing":null,"yes":true}}`
	alias := Candidate{"Qwen/Qwen3-8B", params([]string{"temperature", "top_k"}, "top_p", "0.9", "stop", `["a","b\n"]`, "kw", kw)}
	own := Candidate{"Qwen/Qwen3-8B", params([]string{"temperature", "top_k", "seed"}, "top_p", "0.9", "stop", `["a","b\n"]`, "kw", kw)}
	think := Candidate{"Qwen/Qwen3-8B", params([]string{"top_k", "top_p"}, "stop", `["a","b\n"]`, "kw", `{"think":true}`, "temperature", "0.6")}
	small := Candidate{Model: "small"}
	anyOf := Target{Selector: "any", Strategy: StrategyNearest, Candidates: []Candidate{small, alias}}
	one := func(c Candidate) Target { return Target{Strategy: StrategyPin, Candidates: []Candidate{c}} }
	for name, tt := range map[string]struct {
		name, profile string
		want          Target
	}{
		"a model":                        {"small", "", one(small)},
		"a model that is a variant":      {"Qwen/Qwen3-8B", "", one(own)},
		"an alias":                       {"gpt-4o-mini", "", one(alias)},
		"a variant":                      {"Qwen/Qwen3-8B:think", "", one(think)},
		"a selector":                     {"any", "", anyOf},
		"a selector with a number":       {"many", "", Target{"many", StrategySpillover, 4, []Candidate{small, own}}},
		"a pin to a variant":             {"gpt-4", "work", one(think)},
		"a pin of a model to a selector": {"small", "work", anyOf},
		"a name without a pin":           {"gpt-4o-mini", "work", one(alias)},
		"a profile that there is not":    {"small", "play", one(small)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Resolve(tt.name, tt.profile)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	again, err := c.Resolve("gpt-4o-mini", "")
	require.NoError(t, err)
	assert.Equal(t, one(alias), again, "a merge changes no model")
}

func TestUnknownNamesAreToldTheNearest(t *testing.T) {
	c := parsed(t, whole)
	for name, tt := range map[string]struct{ name, profile, want string }{
		"a letter":                 {"smal", "", `there is no model "smal": did you mean small? There are: Qwen/Qwen3-8B, gpt-4o-mini, yes, Qwen/Qwen3-8B:think, small, any, many`},
		"without its organisation": {"qwen3-8b", "", `there is no model "qwen3-8b": did you mean Qwen/Qwen3-8B or Qwen/Qwen3-8B:think? There are: Qwen/Qwen3-8B, gpt-4o-mini, yes, Qwen/Qwen3-8B:think, small, any, many`},
		"with a tag":               {"small:latest", "", `there is no model "small:latest": did you mean small? There are: Qwen/Qwen3-8B, gpt-4o-mini, yes, Qwen/Qwen3-8B:think, small, any, many`},
		"like no other":            {"deepseek", "", `there is no model "deepseek". There are: Qwen/Qwen3-8B, gpt-4o-mini, yes, Qwen/Qwen3-8B:think, small, any, many`},
		"a pin of no profile":      {"gpt-4", "", `there is no model "gpt-4". There are: Qwen/Qwen3-8B, gpt-4o-mini, yes, Qwen/Qwen3-8B:think, small, any, many`},
		"turned off":               {"off", "work", `the model "off" is turned off by the profile work`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Resolve(tt.name, tt.profile)
			var unknown *inference.UnknownModel
			require.ErrorAs(t, err, &unknown)
			assert.Equal(t, tt.want, err.Error())
		})
	}
	_, err := (&Catalogue{}).Resolve("x", "")
	assert.EqualError(t, err, `there is no model "x": there are no models here`)
}
