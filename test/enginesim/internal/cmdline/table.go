package cmdline

import (
	_ "embed"
	"strings"
)

//go:embed flags.tsv
var flagsTSV string

// Arity is how many values an option takes, in argparse's words.
type Arity string

const (
	None       Arity = "0"
	One        Arity = "1"
	Optional   Arity = "?"
	OneOrMore  Arity = "+"
	typeBool         = "bool"
	typeTrue         = "true"
	typeAppend       = "append"
)

// Option is one option of the command line.
type Option struct {
	Names   []string // as written, dashes included; --no-… last for a bool
	Arity   Arity
	Type    string   // int, float, json, human, str, bool, true or append
	Choices []string // nil when anything goes
}

// Dest is the name under which the option's value is kept.
func (o *Option) Dest() string {
	for _, n := range o.Names {
		if strings.HasPrefix(n, "--") {
			return strings.ReplaceAll(strings.TrimLeft(n, "-"), "-", "_")
		}
	}
	return strings.TrimLeft(o.Names[0], "-")
}

// vllmOptions reads the table of vLLM's own options.
func vllmOptions() []*Option {
	var options []*Option
	for line := range strings.Lines(flagsTSV) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		o := &Option{Names: strings.Split(cells[0], ","), Arity: Arity(cells[1]), Type: cells[2]}
		if len(cells) > 3 {
			o.Choices = strings.Split(cells[3], "|")
		}
		options = append(options, o)
	}
	return options
}
