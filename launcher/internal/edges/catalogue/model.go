package catalogue

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

const maxNameLength = 256

// name reads the name of something. It is empty after a fault.
func (v value) name() string {
	name := v.text("a string")
	if len(name) > maxNameLength || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		v.fail("%s must have no blanks and at most %d characters, not %.40q", v.key, maxNameLength, name)
		return ""
	}
	return name
}

// names reads a list of names.
func (v value) names() []string {
	var all []string
	v.items(func(_ int, item value) { all = append(all, item.name()) })
	return all
}

func (d *decoder) model(v value) Model {
	m := Model{Engine: d.machine.Engines[0], Restart: RestartOnFailure}
	v.key = "a model"
	v.object(d.modelFields(&m), "name")
	d.checkModel(v, &m)
	return m
}

func (d *decoder) modelFields(m *Model) []field {
	return []field{
		{"name", func(v value) { m.Name = v.name() }},
		{"aliases", func(v value) { m.Aliases = v.names() }},
		{"engine", func(v value) { m.Engine = v.choice(d.engines()...) }},
		{"options", func(v value) { m.Options = v.options() }},
		{"args", func(v value) { m.Args = v.args() }},
		{"gpus", func(v value) { m.GPUs = v.gpus() }},
		{"gpu_memory", func(v value) { m.GPUMemory = v.bytes() }},
		{"env", func(v value) { m.Env = v.env() }},
		{"priority", func(v value) { v.integer(&m.Priority, -1<<31) }},
		{"pinned", func(v value) { v.boolean(&m.Pinned) }},
		{"preload", func(v value) { v.boolean(&m.Preload) }},
		{"sleep_after", func(v value) { v.sleepAfter(m) }},
		{"stop_after", func(v value) { m.StopAfter = v.duration() }},
		{"concurrency", func(v value) { v.integer(&m.Concurrency, 1) }},
		{"start_method", func(v value) { m.StartMethod = v.choice("auto", "exec", "fork") }},
		{"restart", func(v value) { m.Restart = v.choice(RestartOnFailure, RestartNever) }},
		{"params", func(v value) { m.Params, m.Variants = v.modelParams() }},
	}
}

// checkModel finds fields that contradict each other.
func (d *decoder) checkModel(v value, m *Model) {
	_, hasOptions := d.places[v.path+".options"]
	args, hasArgs := d.places[v.path+".args"]
	switch {
	case hasOptions && hasArgs:
		d.failAt(args, "the model has options and args: keep one")
	case !hasOptions && !hasArgs && m.Engine != "" && !d.isCommand(m.Engine):
		if _, ok := d.places[v.path+".name"]; ok {
			v.fail("the model %s has no command line: give options, such as \"options: ORG/MODEL --max-model-len 4096\", or args, a list", m.Name)
		}
	}
	if at, says := d.places[v.path+".gpu_memory"]; says && m.Engine != "" && !d.isCommand(m.Engine) {
		d.failAt(at, "gpu_memory is for models of a command: the launcher learns from the command line what %s takes", m.Engine)
	}
	if m.StopAfter > 0 && m.StopAfter < m.SleepAfter {
		d.failAt(d.places[v.path+".stop_after"], "stop_after must be no shorter than sleep_after (%s), not %s: the model would stop before it sleeps", m.SleepAfter, m.StopAfter)
	}
}

func (v value) options() string {
	options := v.text("a string: the engine's command line")
	if _, err := launcherapi.SplitOptions(options); err != nil {
		v.fail("options cannot be split into words: %v", err)
	}
	return options
}

func (v value) args() []string {
	var all []string
	v.items(func(_ int, item value) {
		all = append(all, item.scalar("a string"))
	})
	if list := v.d.places[v.path]; len(all) == 0 && kindOf(v.node) == "a list" {
		v.d.failAt(list, "args is an empty list: give the engine's command line")
	}
	return all
}

func (v value) gpus() (g GPUs) {
	switch kindOf(v.node) {
	case "a list":
		v.items(func(_ int, item value) {
			uuid := item.text("a string: a UUID")
			if uuid != "" && slices.Contains(g.UUIDs, uuid) {
				item.fail("the GPU %s is there twice: keep one", uuid)
			}
			g.UUIDs = append(g.UUIDs, uuid)
		})
		if len(g.UUIDs) == 0 {
			v.fail("gpus is an empty list: give a count or UUIDs")
		}
	case "a number":
		v.integer(&g.Count, 1)
	default:
		v.mustBe("a count or a list of UUIDs")
	}
	return g
}

func (v value) env() map[string]launcherapi.EnvValue {
	all := map[string]launcherapi.EnvValue{}
	v.entries(func(key, of value) {
		if key.key == "" || strings.ContainsAny(key.key, "=\x00") {
			key.fail("%q is no name of a variable", key.key)
			return
		}
		all[key.key] = of.envValue()
	})
	return all
}

func (v value) envValue() (e launcherapi.EnvValue) {
	if kindOf(v.node) == "a mapping" {
		v.object([]field{{"from_file", func(v value) {
			e.FromFile = v.text("the path of a file")
			if e.FromFile != "" && !filepath.IsAbs(e.FromFile) {
				v.fail("from_file must be an absolute path, not %q", e.FromFile)
			}
		}}}, "from_file")
		return e
	}
	text := v.scalar(`a string, or {from_file: PATH}`)
	_, unset := expand(text, v.d.machine.Env)
	for _, name := range unset {
		v.fail("the environment variable %s is not set: set it for the launcher, or write the value itself", name)
	}
	return launcherapi.EnvValue{Value: text}
}

// sleepAfter reads a duration, which is that of level 1, or a level and its duration.
func (v value) sleepAfter(m *Model) {
	set := func(level int) func(of value) {
		return func(of value) {
			switch after := of.duration(); {
			case after == 0:
			case m.SleepAfter > 0:
				of.fail("a model that sleeps at level %d does not go on to level %d: keep one level; stop_after ends a model that sleeps", m.SleepLevel, level)
			default:
				m.SleepAfter, m.SleepLevel = after, level
			}
		}
	}
	if kindOf(v.node) != "a mapping" {
		set(1)(v)
		return
	}
	v.object([]field{{"1", set(1)}, {"2", set(2)}})
}

func (v value) modelParams() (p inference.Params, variants map[string]inference.Params) {
	fields := append(v.paramFields(&p), field{"variants", func(v value) {
		variants = map[string]inference.Params{}
		v.entries(func(key, of value) {
			name := value{key.d, key.node, key.path, "a variant"}.nameOf(key.key)
			var change inference.Params
			of.object(of.paramFields(&change))
			of.checkParams(change)
			variants[name] = change
		})
	}})
	v.object(fields)
	v.checkParams(p)
	return p, variants
}

// nameOf checks a name that is a key.
func (v value) nameOf(name string) string {
	if name == "" || len(name) > maxNameLength || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		v.fail("%s must have a name without blanks and of at most %d characters, not %.40q", v.key, maxNameLength, name)
		return ""
	}
	return name
}

func (v value) paramFields(p *inference.Params) []field {
	return []field{
		{"strip", func(v value) {
			v.items(func(_ int, item value) {
				name := item.text("a string")
				if name == "model" {
					item.fail("model cannot be stripped: the engine needs it")
					return
				}
				p.Strip = append(p.Strip, name)
			})
		}},
		{"set", func(v value) {
			p.Set = map[string]json.RawMessage{}
			v.entries(func(key, of value) {
				if key.key == "model" {
					key.fail("model cannot be set: aliases and variants give a model further names")
				}
				data, err := json.Marshal(of.json())
				if err != nil {
					of.fail("%s cannot be written as JSON: %v", of.key, err)
				}
				p.Set[key.key] = data
			})
		}},
	}
}

func (v value) checkParams(p inference.Params) {
	for _, name := range slices.Sorted(maps.Keys(p.Set)) {
		if i := slices.Index(p.Strip, name); i >= 0 {
			v.d.failAt(v.d.places[fmt.Sprintf("%s.strip[%d]", v.path, i)], "%s is stripped and set: keep one; what is set takes the place of what the client says", name)
		}
	}
}
