package cmdline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"hotseat.dev/hotseat/test/enginesim/internal/vllmerr"
)

// rearrange moves --model to the front and puts the values of --config before
// those of the command line, so that the latter win.
func rearrange(args []string, a *Args) ([]string, error) {
	if i := slices.IndexFunc(args, func(s string) bool { return s == "--model" || strings.HasPrefix(s, "--model=") }); i >= 0 {
		a.Warnings = append(a.Warnings, "With `vllm serve`, you should provide the model as a positional argument or in a config file instead of via the `--model` option. The `--model` option will be removed in a future version.")
		model, ok := strings.CutPrefix(args[i], "--model=")
		rest := args[i+1:]
		if !ok {
			if len(rest) == 0 {
				return nil, vllmerr.New("IndexError: list index out of range")
			}
			model, rest = rest[0], rest[1:]
		}
		args = slices.Concat([]string{model}, args[:i], rest)
	}
	hasConfig := slices.ContainsFunc(args, func(s string) bool { return s == "--config" || strings.HasPrefix(s, "--config=") })
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && !hasConfig && slices.ContainsFunc(args, isServedName) {
		return nil, vllmerr.New("ValueError: `model` should be provided as the first positional argument when using `vllm serve`. i.e. `vllm serve <model> --<arg> <value>`.")
	}
	i := slices.Index(args, "--config")
	if i < 0 {
		return args, nil
	}
	if i == len(args)-1 {
		return nil, vllmerr.New("ValueError: No config file specified! Please check your command-line arguments.")
	}
	config, err := fromFile(args[i+1])
	if err != nil {
		return nil, err
	}
	rest := slices.Concat(args[:i], args[i+2:])
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return slices.Concat(rest[:1], config, rest[1:]), nil
	}
	if !slices.Contains(config, "--model") {
		return nil, vllmerr.New("ValueError: No model specified! Please specify model either as a positional argument or in a config file.")
	}
	return slices.Concat(config, rest), nil
}

func isServedName(s string) bool {
	name, _, _ := strings.Cut(s, "=")
	return strings.ReplaceAll(name, "_", "-") == "--served-model-name"
}

// fromFile turns a YAML file into arguments, in the order of the file.
func fromFile(path string) ([]string, error) {
	if !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".yml") {
		return nil, vllmerr.New("ValueError: Config file must be of a yaml/yml type. %s supplied", path[strings.LastIndex(path, ".")+1:])
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, vllmerr.New("FileNotFoundError: [Errno 2] No such file or directory: '%s'", path)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // as PyYAML does
	var config yaml.MapSlice
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("yaml.scanner.ScannerError: %w", err)
	}
	var args []string
	for _, item := range config {
		name := "--" + fmt.Sprint(item.Key)
		switch v := item.Value.(type) {
		case bool:
			// A false is dropped: vLLM looks for --no-… among the options of
			// its outer parser, which has none.
			if v {
				args = append(args, name)
			}
		case []any:
			if len(v) > 0 {
				args = append(args, name)
			}
			for _, e := range v {
				args = append(args, fmt.Sprint(e))
			}
		case map[string]any, yaml.MapSlice:
			object, err := yaml.MarshalWithOptions(v, yaml.JSON())
			if err != nil {
				return nil, fmt.Errorf("cannot turn %s into JSON: %w", name, err)
			}
			args = append(args, name, strings.TrimSpace(string(object)))
		default:
			args = append(args, name, fmt.Sprint(v))
		}
	}
	return args, nil
}

// normalise puts dashes for underscores in names, spells -O out, and gathers
// dotted keys into one JSON value for each option.
func normalise(args []string, a *Args) ([]string, error) {
	var out, order []string
	seen, objects := map[string]bool{}, map[string]map[string]any{}
	args = spell(args)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, value, hasValue := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "-") || !strings.Contains(name, ".") || negativeNumber.MatchString(arg) {
			if strings.HasPrefix(arg, "--") && seen[name] {
				a.Warnings = append(a.Warnings, "Found duplicate keys "+name)
			}
			seen[name] = true
			out = append(out, arg)
			continue
		}
		if !hasValue {
			if i+1 == len(args) {
				return nil, vllmerr.New("IndexError: list index out of range")
			}
			i++
			value = args[i]
		}
		keys := strings.Split(strings.TrimSuffix(name, "+"), ".")
		if objects[keys[0]] == nil {
			objects[keys[0]] = map[string]any{}
			order = append(order, keys[0])
		}
		put(objects[keys[0]], keys[1:], dotted(value, strings.HasSuffix(name, "+")))
	}
	for _, name := range order {
		object, err := json.Marshal(objects[name])
		if err != nil {
			return nil, fmt.Errorf("cannot turn %s into JSON: %w", name, err)
		}
		out = append(out, name, string(object))
	}
	return out, nil
}

func spell(args []string) []string {
	var out []string
	for i, arg := range args {
		name, value, hasValue := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "--"):
			head, keys, dotted := strings.Cut(name, ".")
			name = strings.ReplaceAll(head, "_", "-")
			if dotted {
				name += "." + keys
			}
			if hasValue {
				name += "=" + value
			}
			out = append(out, name)
		case strings.HasPrefix(arg, "-O") && arg != "-O":
			out = append(out, "--optimization-level", strings.TrimPrefix(arg[2:], "="))
		case arg == "-O" && i+1 < len(args) && slices.Contains([]string{"0", "1", "2", "3"}, args[i+1]):
			out = append(out, "--optimization-level")
		default:
			out = append(out, arg)
		}
	}
	return out
}

func dotted(value string, list bool) any {
	if list {
		var items []any
		for item := range strings.SplitSeq(value, ",") {
			items = append(items, item)
		}
		return items
	}
	var v any
	if err := json.Unmarshal([]byte(value), &v); err == nil {
		return v
	}
	if n, ok := HumanInt(value); ok {
		return n
	}
	return value
}

func put(object map[string]any, keys []string, value any) {
	for _, k := range keys[:len(keys)-1] {
		inner, ok := object[k].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[k] = inner
		}
		object = inner
	}
	last := keys[len(keys)-1]
	old, was := object[last].([]any)
	more, is := value.([]any)
	if was && is {
		value = append(old, more...)
	}
	object[last] = value
}
