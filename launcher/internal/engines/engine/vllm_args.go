package engine

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
)

// Reading arguments as vLLM does. Its FlexibleArgumentParser rewrites the arguments
// (underscores, -O3, dotted keys) and hands them to Python's argparse, which then
// decides by their looks alone what is a flag and what is a value; see
// vllm/utils/argparse_utils.py of vLLM 0.30.0. Arguments that could make the two
// readings differ about a flag that matters to the launcher are refused here.

//go:embed vllm_flags.txt
var vllmFlagList string

// vllmFlags says for each flag of vLLM how many values it takes: "0", "1",
// "?" (none or one), "+" (one or more).
var vllmFlags = parseFlagList(vllmFlagList)

func parseFlagList(list string) map[string]string {
	flags := map[string]string{}
	for line := range strings.Lines(list) {
		if name, nargs, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			flags[name] = nargs
		}
	}
	return flags
}

// item is one flag with its values, or a value that belongs to no flag.
type item struct {
	flag   string   // canonical long name; "" for a value without a flag
	known  bool     // the flag is in vllmFlags
	dotted bool     // --flag.key: one key of a flag that takes JSON
	values []string // the arguments that follow, or the text after "="
	inline bool     // the value stands after "="
	raw    []string // the arguments as they were
}

// readItems groups arguments into items. It refuses arguments that would be read
// differently once other arguments stand around them.
func readItems(tokens []string) ([]item, error) {
	var items []item
	for i := 0; i < len(tokens); {
		it, err := readItem(tokens[i:])
		if err != nil {
			return nil, err
		}
		it.raw = tokens[i : i+len(it.raw)]
		items = append(items, it)
		i += len(it.raw)
	}
	return items, nil
}

// readItem reads the item at the start of tokens, which are not empty. Only the
// length of its raw is final.
func readItem(tokens []string) (item, error) {
	first := tokens[0]
	switch {
	case first == "--":
		return item{}, inputError("", "--", "-- cannot be used: vLLM takes no arguments after it; leave it out")
	case !isFlag(first):
		return item{values: tokens[:1], raw: tokens[:1]}, nil
	case isNumber(first): // a number with a point
		return item{}, inputError("", first, "vLLM reads %s as a key of a flag: write it after =, as in --flag=%s", first, first)
	case strings.HasPrefix(first, "-O") && first != "-O":
		return readOptimizationLevel(tokens)
	}

	key, value, inline := strings.Cut(first, "=")
	name, _, dotted := strings.Cut(key, ".")
	it := item{flag: canonicalFlag(name), dotted: dotted, inline: inline, raw: tokens[:1]}
	if flag, attached, ok := attachedValue(first); ok {
		it.flag, it.dotted, it.inline, value = flag, false, true, attached
	}
	_, it.known = vllmFlags[it.flag]
	if whole, ok := abbreviates(it.flag); ok {
		return item{}, inputError("", whole, "%s is an abbreviation, perhaps of %s: write the flag out", it.flag, whole)
	}
	switch {
	case it.inline:
		it.values = []string{value}
		return it, nil
	case dotted:
		// vLLM takes the next argument for the value, even one that looks like a
		// flag.
		if len(tokens) == 1 || isFlag(tokens[1]) && !isNumber(tokens[1]) {
			return item{}, inputError("", it.flag, "%s needs a value: write %s=VALUE", key, key)
		}
		it.values = tokens[1:2]
	default:
		it.values = valuesOf(it, tokens[1:])
	}
	it.raw = tokens[:1+len(it.values)]
	return it, nil
}

// valuesOf takes the values of a flag from the arguments after it. A flag that is
// not known may take any number of values.
func valuesOf(it item, rest []string) []string {
	n := 0
	for n < len(rest) && !isFlag(rest[n]) {
		n++
	}
	switch vllmFlags[it.flag] {
	case "0":
		n = 0
	case "1", "?":
		n = min(n, 1)
	}
	return rest[:n]
}

// readOptimizationLevel reads -O3 and -O=3, which vLLM splits in two.
func readOptimizationLevel(tokens []string) (item, error) {
	level := strings.TrimPrefix(tokens[0][2:], "=")
	if strings.HasPrefix(level, "-") {
		return item{}, inputError("", "-O", "%s is not an optimization level: write -O0 to -O3", tokens[0])
	}
	return item{flag: "--optimization-level", known: true, values: []string{level}, inline: true, raw: tokens[:1]}, nil
}

// attachedValue reads -n2 and -r1, argparse's other way to write -n 2 and -r 1.
func attachedValue(token string) (flag, value string, ok bool) {
	for _, short := range []string{"-n", "-r"} {
		value, ok := strings.CutPrefix(token, short)
		if _, exact := vllmFlags[token]; ok && !exact && !strings.HasPrefix(value, "=") {
			return vllmShort[short], value, true
		}
	}
	return "", "", false
}

// isFlag tells by the looks of an argument, as argparse does, whether it is a flag.
// A negative number is a value, unless it has a point: vLLM takes that for a dotted
// key. A text with a space is a value too, unless an "=" or a point comes before
// the space.
func isFlag(token string) bool {
	if len(token) < 2 || token[0] != '-' {
		return false
	}
	if _, ok := vllmFlags[token[:2]]; ok {
		return true // one letter, with or without its value
	}
	key, _, _ := strings.Cut(token, "=")
	if strings.Contains(key, ".") {
		return true
	}
	return strings.Trim(token[1:], "0123456789") != "" && !strings.Contains(key, " ")
}

func isNumber(token string) bool {
	_, err := strconv.ParseFloat(token, 64)
	return err == nil
}

// Flag is a word of a command line that vLLM takes for a flag by its looks.
type Flag struct {
	Names  []string // flags that it may mean: itself, with dashes, or those that it abbreviates
	Inline bool     // the value stands after "="
	Values int      // how many of the words that follow may be values
}

// ReadFlag reads a word of a command line; false: the word is a value.
func ReadFlag(word string) (Flag, bool) {
	if !isFlag(word) {
		return Flag{}, false
	}
	key, _, inline := strings.Cut(word, "=")
	name, keys, dotted := strings.Cut(key, ".")
	name = canonicalFlag(name)
	f := Flag{Names: []string{name}, Inline: inline}
	if _, exact := vllmFlags[name]; !exact && len(name) > 2 {
		for whole := range vllmFlags {
			if strings.HasPrefix(whole, name) {
				f.Names = append(f.Names, whole)
			}
		}
	}
	if dotted {
		f.Names, f.Values = append(f.Names, keys), 1
		return f, true
	}
	for n, name := range f.Names {
		switch most, known := vllmFlags[name]; {
		case most == "+", !known && len(f.Names) == 1:
			f.Values = math.MaxInt
		case n > 0 || known, most == "1", most == "?":
			f.Values = max(f.Values, min(len(strings.Trim(most, "0")), 1))
		}
	}
	return f, true
}

// canonicalFlag gives a flag's long name, with dashes.
func canonicalFlag(name string) string {
	if strings.HasPrefix(name, "--") {
		name = "--" + strings.ReplaceAll(name[2:], "_", "-")
	}
	if long, ok := vllmShort[name]; ok {
		return long
	}
	return name
}

// abbreviates finds a flag that matters to the launcher and that argparse may
// take name for. Exact names are no abbreviations.
func abbreviates(name string) (string, bool) {
	if _, exact := vllmFlags[name]; exact || strings.Trim(name, "-") == "" {
		return "", false
	}
	for _, whole := range vllmReadNames {
		if len(name) < len(whole) && strings.HasPrefix(whole, name) {
			return whole, true
		}
	}
	return "", false
}
