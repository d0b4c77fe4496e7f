package importswap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// model adds a model, unless its command is that of no engine and cannot become one.
func (im *importer) model(name string, fields yaml.MapSlice) {
	where := "models." + name
	own := append(macrosOf(get(fields, "macros")), im.macros...) // those of the model win
	own = append([]macro{{"MODEL_ID", name}}, own...)
	for i := range own {
		own[i].value = substitute(own[i].value, own[:1])
	}
	// Comments go first: a macro in one may have several lines.
	cmd, _ := get(fields, "cmd").(string)
	cmd = fmt.Sprint(substitute(withoutComments(cmd), own))
	fields = substitute(fields, own).(yaml.MapSlice)
	m := catalogue.Model{Name: name, Restart: catalogue.RestartOnFailure}
	sleeps, fields := im.engine(where, &m, fields, im.environment(cmd))
	if m.Engine == "" {
		im.skipped[name] = true
		im.note(where, "the model is left out: its cmd is neither llama-server nor vllm, and no program that ${PORT} tells where to listen")
		return
	}
	ttl := im.globalTTL
	for _, item := range fields {
		key := fmt.Sprint(item.Key)
		at := where + "." + key
		switch key {
		case "cmd", "macros":
		case "aliases":
			m.Aliases = list(item.Value)
		case "env":
			im.variables(at, &m, list(item.Value))
		case "filters":
			im.filters(at, &m, mapping(item.Value))
		case "concurrencyLimit":
			m.Concurrency = max(0, number(item.Value))
		case "ttl":
			if n := number(item.Value); n >= 0 {
				ttl = seconds(item.Value)
			}
		case "cmdStop":
			if level := wrapperLevel(fmt.Sprint(item.Value)); level > 0 {
				sleeps = true
				defer func() { im.atLevel(name, level) }()
			} else {
				im.without(at)
			}
		default:
			im.without(at)
		}
	}
	switch {
	case ttl == 0:
	case sleeps:
		m.SleepAfter, m.SleepLevel = ttl, 1
	default:
		m.StopAfter = ttl
	}
	im.catalogue.Models = append(im.catalogue.Models, m)
}

// atLevel changes the level at which a model sleeps.
func (im *importer) atLevel(name string, level int) {
	if m := im.find(name); m.SleepAfter > 0 {
		m.SleepLevel = level
	}
}

const visibleDevices = "CUDA_VISIBLE_DEVICES"

func (im *importer) variables(where string, m *catalogue.Model, env []string) {
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if name == visibleDevices {
			m.GPUs.Count = len(strings.Split(value, ","))
			im.note(where, "%s=%s became gpus: %d, any GPUs; for chosen ones list their UUIDs", name, value, m.GPUs.Count)
			continue
		}
		if m.Env == nil {
			m.Env = map[string]launcherapi.EnvValue{}
		}
		m.Env[name] = launcherapi.EnvValue{Value: strings.ReplaceAll(value, "${env.", "${env:")}
	}
}

func (im *importer) filters(where string, m *catalogue.Model, filters yaml.MapSlice) {
	for _, item := range filters {
		at := where + "." + fmt.Sprint(item.Key)
		switch item.Key {
		case "stripParams", "strip_params":
			for name := range strings.SplitSeq(fmt.Sprint(item.Value), ",") {
				if name = strings.TrimSpace(name); name != "" && name != "model" && !slices.Contains(m.Params.Strip, name) {
					m.Params.Strip = append(m.Params.Strip, name)
				}
			}
		case "setParams":
			m.Params.Set = im.params(at, mapping(item.Value))
		case "setParamsByID":
			m.Variants = map[string]inference.Params{}
			for _, variant := range mapping(item.Value) {
				name := fmt.Sprint(variant.Key)
				m.Variants[name] = inference.Params{Set: im.params(at+"."+name, mapping(variant.Value))}
			}
		default:
			im.without(at)
		}
	}
	// A parameter that is set takes the place of the client's, stripped or not.
	m.Params.Strip = slices.DeleteFunc(m.Params.Strip, func(name string) bool { return m.Params.Set[name] != nil })
}

func (im *importer) params(where string, set yaml.MapSlice) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, item := range set {
		name := fmt.Sprint(item.Key)
		data, err := json.Marshal(plain(item.Value))
		if name == "model" || err != nil {
			im.note(where, "%s cannot be set", name)
			continue
		}
		im.checkMacros(where+"."+name, string(data))
		all[name] = data
	}
	return all
}

// plain gives a value for [json.Marshal].
func plain(value any) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		all := map[string]any{}
		for _, item := range v {
			all[fmt.Sprint(item.Key)] = plain(item.Value)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plain(v[i])
		}
		return all
	}
	return value
}
