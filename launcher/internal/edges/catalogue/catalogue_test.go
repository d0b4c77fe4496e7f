package catalogue

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const whole = `
listen: 127.0.0.1:8001
models:
- name: Qwen/Qwen3-8B
  aliases: [gpt-4o-mini, "yes"]
  options: Qwen/Qwen3-8B --max-model-len 4096
  gpus: 2
  env:
    HF_TOKEN: ${env:TOKEN}-x
    KEY: {from_file: /run/secrets/key}
    N: 4
  priority: -3
  pinned: true
  sleep_after: {2: 90m}
  stop_after: 3h
  concurrency: 8
  start_method: fork
  preload: true
  restart: never
  params:
    strip: [temperature, top_k]
    set: {top_p: 0.9, stop: ["a", "b\n"], kw: {deep: {n: 1e3, nothing: null, yes: true}}}
    variants:
      Qwen/Qwen3-8B: {strip: [seed]}
      Qwen/Qwen3-8B:think:
        strip: [top_p]
        set: {kw: {think: true}, temperature: 0.6}
- name: small
  engine: llamacpp
  args: [-m, /models/a b.gguf, -c, 4096, --flag=true]
  gpus: [GPU-bbbb, GPU-aaaa]
  sleep_after: 10m
selectors:
- {name: any, strategy: warm, models: [small, gpt-4o-mini]}
- {name: many, strategy: spillover, models: [small, Qwen/Qwen3-8B], n: 4}
profiles:
- name: work
  pins: {gpt-4: Qwen/Qwen3-8B:think, small: any, off: ~}
`

func wholeCatalogue() *Catalogue {
	return &Catalogue{
		Models: []Model{{
			Name: "Qwen/Qwen3-8B", Aliases: []string{"gpt-4o-mini", "yes"}, Engine: "vllm",
			Options: "Qwen/Qwen3-8B --max-model-len 4096", GPUs: GPUs{Count: 2},
			Env: map[string]launcherapi.EnvValue{
				"HF_TOKEN": {Value: "${env:TOKEN}-x"}, "KEY": {FromFile: "/run/secrets/key"}, "N": {Value: "4"},
			},
			Priority: -3, Pinned: true, Preload: true,
			SleepAfter: 90 * time.Minute, SleepLevel: 2, StopAfter: 3 * time.Hour,
			Concurrency: 8, StartMethod: "fork", Restart: RestartNever,
			Params: inference.Params{Strip: []string{"temperature", "top_k"}, Set: map[string]json.RawMessage{
				"top_p": json.RawMessage(`0.9`), "stop": json.RawMessage(`["a","b\n"]`),
				"kw": json.RawMessage(`{"deep":{"n":1e3,"nothing":null,"yes":true}}`),
			}},
			Variants: map[string]inference.Params{
				"Qwen/Qwen3-8B": {Strip: []string{"seed"}},
				"Qwen/Qwen3-8B:think": {Strip: []string{"top_p"}, Set: map[string]json.RawMessage{
					"kw": json.RawMessage(`{"think":true}`), "temperature": json.RawMessage(`0.6`),
				}},
			},
		}, {
			Name: "small", Engine: "llamacpp", Args: []string{"-m", "/models/a b.gguf", "-c", "4096", "--flag=true"},
			GPUs: GPUs{UUIDs: []string{"GPU-bbbb", "GPU-aaaa"}}, SleepAfter: 10 * time.Minute, SleepLevel: 1, Restart: RestartOnFailure,
		}},
		Selectors: []Selector{
			{Name: "any", Strategy: StrategyNearest, Models: []string{"small", "gpt-4o-mini"}},
			{Name: "many", Strategy: StrategySpillover, Models: []string{"small", "Qwen/Qwen3-8B"}, N: 4},
		},
		Profiles: []Profile{{Name: "work", Pins: map[string]string{"gpt-4": "Qwen/Qwen3-8B:think", "small": "any", "off": ""}}},
	}
}

func TestEveryFieldIsRead(t *testing.T) {
	assert.Equal(t, wholeCatalogue(), parsed(t, whole))
}

func TestPrintedCatalogueIsReadAgain(t *testing.T) {
	printed := parsed(t, whole).YAML()
	assert.Equal(t, wholeCatalogue(), parsed(t, string(printed)), string(printed))
}

func TestFileWithoutModelsIsAnEmptyCatalogue(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "listen: 127.0.0.1:8001\n", "models: []\nselectors: []\n"} {
		assert.Equal(t, &Catalogue{}, parsed(t, text), text)
	}
}

func TestModelsOfConfDComeAfterThoseOfTheFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file := filepath.Join(dir, "hotseat.yaml")
	write("hotseat.yaml", "models: [{name: first, options: a}]\n")
	c, err := Load(file, machine())
	require.NoError(t, err)
	assert.Equal(t, []string{"first"}, c.Names())

	write("conf.d/20-b.yml", "models: [{name: third, options: a}]\n")
	write("conf.d/10-a.json", `{"models": [{"name": "second", "options": "a"}]}`)
	write("conf.d/.hidden.yaml", "models: 5\n")
	write("conf.d/README.md", "models: 5\n")
	c, err = Load(file, machine())
	require.NoError(t, err)
	assert.Equal(t, []string{"first", "second", "third"}, c.Names())

	write("conf.d/30-c.yaml", "models: [{name: third, options: a}]\n")
	c, err = Load(file, machine())
	assert.Nil(t, c)
	assert.EqualError(t, err, filepath.Join(dir, "conf.d/30-c.yaml")+`:1:17: "third" is already the name of a model (`+filepath.Join(dir, "conf.d/20-b.yml")+`:1:17): give each its own name`)

	_, err = Load(filepath.Join(t.TempDir(), "none.yaml"), machine())
	assert.ErrorContains(t, err, "none.yaml: cannot read it: no such file or directory")
}

func TestGPUsAreNotCheckedWhereTheyAreUnknown(t *testing.T) {
	m := machine()
	m.GPUs = nil
	_, err := parse([]source{{"hotseat.yaml", []byte("models: [{name: a, options: b, gpus: [GPU-zzzz]}, {name: c, options: b, gpus: 9, preload: true}]"), true}}, m)
	assert.NoError(t, err)
}

func TestVariablesOfTheLauncherTakeTheirPlace(t *testing.T) {
	m := Model{Env: map[string]launcherapi.EnvValue{
		"A": {Value: "${env:HOME}/x/${env:TOKEN}$"}, "B": {Value: "$HOME {env:HOME}"}, "C": {FromFile: "/f"},
	}}
	assert.Equal(t, map[string]launcherapi.EnvValue{
		"A": {Value: "/home/a/x/secret$"}, "B": {Value: "$HOME {env:HOME}"}, "C": {FromFile: "/f"},
	}, m.EnvVars(machine().Env))
}

func TestParametersAreSetAsJSONHasThem(t *testing.T) {
	c := parsed(t, `models: [{name: a, options: b, params: {set: {a: 1e3, b: "1e3", c: 0x10, d: 1.50, e: .5, f: null, g: "\u00e9<"}}}]`)
	assert.Equal(t, map[string]json.RawMessage{
		"a": json.RawMessage(`1e3`), "b": json.RawMessage(`"1e3"`), "c": json.RawMessage(`16`), "d": json.RawMessage(`1.50`),
		"e": json.RawMessage(`0.5`), "f": json.RawMessage(`null`), "g": json.RawMessage(`"é\u003c"`),
	}, c.Models[0].Params.Set)
}
