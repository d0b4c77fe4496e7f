package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parsed is what vLLM is left with: the last values of each flag by its
// canonical name, and the values that belong to none.
type parsed struct {
	flags       map[string][]string
	positionals []string
	unknown     []string // flags that vLLM 0.30.0 does not have
}

// parseLikeVLLM is vLLM's reading of a command line, step for step as
// FlexibleArgumentParser and argparse do it and with no idea of what matters to
// a launcher. The fuzz tests hold the plans against it, and
// TestTheModelOfVLLMsParserIsTrue holds it against vLLM.
func parseLikeVLLM(argv []string) (parsed, error) {
	args, err := modelFirst(argv[1:])
	if err != nil {
		return parsed{}, err
	}
	if args, err = withConfig(args); err != nil {
		return parsed{}, err
	}
	if args, err = withoutKeys(rewritten(args)); err != nil {
		return parsed{}, err
	}
	return argparse(args)
}

func modelFirst(args []string) ([]string, error) {
	i := slices.IndexFunc(args, func(a string) bool {
		return a == "--model" || strings.HasPrefix(a, "--model=") && a != "--model="
	})
	if i < 0 {
		named := slices.ContainsFunc(args, func(a string) bool {
			return strings.HasPrefix(strings.ReplaceAll(a, "_", "-"), "--served-model-name")
		})
		if len(args) > 0 && strings.HasPrefix(args[0], "-") && named && !slices.Contains(args, "--config") {
			return nil, errors.New("the model should be first")
		}
		return args, nil
	}
	model, inline := strings.CutPrefix(args[i], "--model=")
	rest := args[i+1:]
	if !inline {
		if len(rest) == 0 {
			return nil, errors.New("--model needs a value")
		}
		model, rest = rest[0], rest[1:]
	}
	return slices.Concat([]string{model}, args[:i], rest), nil
}

func withConfig(args []string) ([]string, error) {
	i := slices.Index(args, "--config")
	if i < 0 {
		return args, nil
	}
	if i == len(args)-1 {
		return nil, errors.New("--config needs a value")
	}
	_, config, err := readConfig(args[i+1])
	if err != nil {
		return nil, err
	}
	before := 0
	if !strings.HasPrefix(args[0], "-") {
		before = 1
	} else if !slices.Contains(config, "--model") {
		return nil, errors.New("no model")
	}
	return slices.Concat(args[:before], config, args[before:i], args[i+2:]), nil
}

func rewritten(args []string) []string {
	var out []string
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, "--"):
			key, value, inline := strings.Cut(a, "=")
			name, keys, dotted := strings.Cut(key[2:], ".")
			a = "--" + strings.ReplaceAll(name, "_", "-")
			if dotted {
				a += "." + keys
			}
			if inline {
				a += "=" + value
			}
			out = append(out, a)
		case strings.HasPrefix(a, "-O") && a != "-O":
			out = append(out, "--optimization-level", strings.TrimPrefix(a[2:], "="))
		case a == "-O" && i+1 < len(args) && slices.Contains([]string{"0", "1", "2", "3"}, args[i+1]):
			out = append(out, "--optimization-level")
		default:
			out = append(out, a)
		}
	}
	return out
}

// withoutKeys moves --flag.key VALUE to the end as --flag JSON.
func withoutKeys(args []string) ([]string, error) {
	var out, late []string
	for i := 0; i < len(args); i++ {
		key, value, inline := strings.Cut(args[i], "=")
		if !strings.HasPrefix(args[i], "-") || !strings.Contains(key, ".") {
			out = append(out, args[i])
			continue
		}
		if !inline {
			if i++; i == len(args) {
				return nil, errors.New("a key needs a value")
			}
			value = args[i]
		}
		name, keys, _ := strings.Cut(key, ".")
		if !json.Valid([]byte(value)) {
			value = strconv.Quote(value)
		}
		late = append(late, name, fmt.Sprintf("{%q: %s}", keys, value))
	}
	return append(out, late...), nil
}

// looks is how argparse sees an argument: as a flag (with the value behind =)
// or as a value.
type looks struct {
	flag   string
	value  string
	inline bool
}

func argparse(args []string) (parsed, error) {
	p := parsed{flags: map[string][]string{}}
	var seen []looks
	for i, a := range args {
		if a == "--" {
			if i < len(args)-1 {
				return p, errors.New("arguments after --")
			}
			args = args[:i]
			break
		}
		l, err := classify(a)
		if err != nil {
			return p, err
		}
		seen = append(seen, l)
	}
	for i := 0; i < len(args); {
		l := seen[i]
		if i++; l.flag == "" {
			p.positionals = append(p.positionals, args[i-1])
			continue
		}
		nargs, known := vllmFlags[l.flag]
		n := 0
		for i+n < len(args) && seen[i+n].flag == "" {
			n++
		}
		switch {
		case !known:
			p.unknown = append(p.unknown, l.flag) // may take any number
		case nargs == "0" && l.inline:
			return p, fmt.Errorf("%s takes no value", l.flag)
		case nargs == "0":
			n = 0
		case l.inline:
			n = 0
		case n == 0 && nargs != "?":
			return p, fmt.Errorf("%s needs a value", l.flag)
		case nargs != "+":
			n = min(n, 1)
		}
		values := slices.Clone(args[i : i+n])
		if l.inline {
			values = []string{l.value}
		}
		p.flags[canonicalFlag(l.flag)] = values
		i += n
	}
	if len(p.positionals) > 1 {
		return p, errors.New("unrecognized arguments")
	}
	return p, nil
}

func classify(a string) (looks, error) {
	if len(a) < 2 || a[0] != '-' {
		return looks{}, nil
	}
	if _, ok := vllmFlags[a]; ok {
		return looks{flag: a}, nil
	}
	key, value, inline := strings.Cut(a, "=")
	if _, ok := vllmFlags[key]; ok {
		return looks{key, value, inline}, nil
	}
	var candidates []looks
	for flag := range vllmFlags {
		switch {
		case a[1] == '-' && strings.HasPrefix(flag, key):
			candidates = append(candidates, looks{flag, value, inline})
		case a[1] != '-' && flag == a[:2]:
			candidates = append(candidates, looks{flag, a[2:], true})
		case a[1] != '-' && strings.HasPrefix(flag, a):
			candidates = append(candidates, looks{flag: flag})
		}
	}
	switch {
	case len(candidates) > 1:
		return looks{}, errors.New("ambiguous option")
	case len(candidates) == 1:
		return candidates[0], nil
	case strings.Trim(a[1:], "0123456789") == "", strings.Contains(a, " "):
		return looks{}, nil
	}
	return looks{flag: a}, nil
}

func (p parsed) last(flag, otherwise string) string {
	if values := p.flags[flag]; len(values) > 0 {
		return values[0]
	}
	return otherwise
}

// model is what ServeSubcommand.cmd serves.
func (p parsed) model() string {
	if len(p.positionals) == 1 {
		return p.positionals[0]
	}
	return p.last("--model", vllmDefaultModel)
}

func TestTheModelOfVLLMsParserIsTrue(t *testing.T) {
	for _, name := range []string{"argvs.jsonl reads.jsonl", "odd.jsonl odd-reads.jsonl"} {
		asked, answered, _ := strings.Cut(name, " ")
		readings := readingsOf(t, "testdata/"+answered)
		data, err := os.ReadFile("testdata/" + asked)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		require.Len(t, readings, len(lines), "run testdata/reads.py for "+asked)
		for i, line := range lines {
			t.Run(line, func(t *testing.T) { requireTrue(t, line, readings[i]) })
		}
	}
}

func requireTrue(t *testing.T, line string, want reading) {
	t.Helper()
	var argv []string
	require.NoError(t, json.Unmarshal([]byte(line), &argv))
	p, err := parseLikeVLLM(argv)
	if want.Error != "" {
		if err == nil && len(p.unknown) == 0 && !strings.Contains(want.Error, "invalid") {
			t.Errorf("vLLM refuses it: %s", want.Error)
		}
		return // values of the wrong type are not the model's concern
	}
	require.NoError(t, err)
	assert.Equal(t, want.Model, p.model())
	assert.Equal(t, want.Host, p.last("--host", ""), "host")
	port, err := strconv.Atoi(p.last("--port", "8000"))
	if err == nil { // Python reads more numbers than this
		assert.Equal(t, want.Port, port, "port")
	}
	assert.Equal(t, want.ServedNames, p.flags["--served-model-name"])
	assert.Equal(t, strconv.Itoa(want.TP), p.last("--tensor-parallel-size", "1"))
	assert.Equal(t, strconv.Itoa(want.Nodes), strings.TrimSpace(p.last("--nnodes", "1")))
	assert.Equal(t, want.Headless, p.flags["--headless"] != nil)
	for flag, value := range map[string]*string{"--uds": want.UDS, "--ssl-keyfile": want.SSLKey, "--ssl-certfile": want.SSLCert} {
		if value == nil {
			assert.Nil(t, p.flags[flag], flag)
		} else {
			assert.Equal(t, []string{*value}, p.flags[flag], flag)
		}
	}
}
