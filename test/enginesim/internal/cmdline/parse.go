// Package cmdline reads the command line of `vllm serve` as vLLM 0.30 does:
// argparse's rules, and on top of them underscores for dashes, dotted keys for
// JSON values, and --config FILE below the command line.
package cmdline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Args are the values given, by the option's dest (such as "max_model_len").
// An option that was not given has none.
type Args struct {
	ModelTag string // the positional, or --model; "" when there was neither
	Values   map[string][]string
	Warnings []string
}

// UsageError is what argparse answers with exit code 2.
type UsageError struct {
	Prog    string // "vllm serve" or, for unknown arguments, "vllm"
	Message string
}

func (e *UsageError) Error() string { return e.Prog + ": error: " + e.Message }

func usage(format string, args ...any) error {
	return &UsageError{Prog: "vllm serve", Message: fmt.Sprintf(format, args...)}
}

// Parser knows the options of one program.
type Parser struct {
	options []*Option
	byName  map[string]*Option
	names   []string // in the order of the table
}

// NewParser knows vLLM's options and extra.
func NewParser(extra []*Option) *Parser {
	p := &Parser{options: append(vllmOptions(), extra...), byName: map[string]*Option{}}
	for _, o := range p.options {
		for _, n := range o.Names {
			p.byName[n] = o
			p.names = append(p.names, n)
		}
	}
	return p
}

// Parse reads what follows `serve`. Errors of usage are a *UsageError; others
// are what vLLM fails with by an exception.
func (p *Parser) Parse(args []string) (*Args, error) {
	a := &Args{Values: map[string][]string{}}
	args, err := rearrange(args, a)
	if err != nil {
		return nil, err
	}
	args, err = normalise(args, a)
	if err != nil {
		return nil, err
	}
	unknown, err := p.read(args, a)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		return nil, &UsageError{Prog: "vllm", Message: "unrecognized arguments: " + strings.Join(unknown, " ")}
	}
	return a, nil
}

// read is argparse proper; it returns what nothing took.
func (p *Parser) read(args []string, a *Args) (unknown []string, err error) {
	onlyPositionals := false
	for i := 0; i < len(args); {
		arg := args[i]
		if !onlyPositionals && arg == "--" {
			onlyPositionals = true
			i++
			continue
		}
		if onlyPositionals || !p.looksLikeOption(arg) {
			if a.ModelTag == "" {
				a.ModelTag = arg
			} else {
				unknown = append(unknown, arg)
			}
			i++
			continue
		}
		opt, name, explicit, err := p.find(arg)
		if err != nil {
			return nil, err
		}
		i++
		if opt == nil {
			unknown = append(unknown, arg)
			continue
		}
		n, err := p.take(opt, name, explicit, args[i:], a)
		if err != nil {
			return nil, err
		}
		i += n
	}
	return unknown, nil
}

var negativeNumber = regexp.MustCompile(`^-\d+$|^-\d*\.\d+$`)

// looksLikeOption tells an option, known or not, from a value.
func (p *Parser) looksLikeOption(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' || negativeNumber.MatchString(arg) {
		return false
	}
	name, _, _ := strings.Cut(arg, "=")
	if p.byName[name] != nil || p.byName[arg] != nil || len(p.abbreviated(name)) > 0 {
		return true
	}
	return !strings.Contains(arg, " ")
}

// find resolves one option as written: its exact name, or an abbreviation that
// only one option has, and the value after "=" when there is one (nil if not).
func (p *Parser) find(arg string) (opt *Option, name string, explicit *string, err error) {
	if o := p.byName[arg]; o != nil {
		return o, arg, nil, nil
	}
	name, value, ok := strings.Cut(arg, "=")
	if ok {
		explicit = &value
	}
	if o := p.byName[name]; o != nil {
		return o, name, explicit, nil
	}
	switch m := p.abbreviated(name); len(m) {
	case 0:
		return nil, "", nil, nil
	case 1:
		return p.byName[m[0]], m[0], explicit, nil
	default:
		return nil, "", nil, usage("ambiguous option: %s could match %s", arg, strings.Join(m, ", "))
	}
}

func (p *Parser) abbreviated(name string) []string {
	var m []string
	for _, n := range p.names {
		if strings.HasPrefix(n, name) {
			m = append(m, n)
		}
	}
	return m
}

// take reads the values of opt from rest and says how many arguments it took.
func (p *Parser) take(opt *Option, name string, explicit *string, rest []string, a *Args) (int, error) {
	dest := opt.Dest()
	var values []string
	n := 0
	if explicit != nil {
		if opt.Arity == None {
			return 0, usage("argument %s: ignored explicit argument '%s'", strings.Join(opt.Names, "/"), *explicit)
		}
		values = []string{*explicit}
	} else {
		for n < len(rest) && (opt.Arity == OneOrMore || n < 1 && opt.Arity != None) && !p.looksLikeOption(rest[n]) && rest[n] != "--" {
			values = append(values, rest[n])
			n++
		}
	}
	if len(values) == 0 {
		switch opt.Arity {
		case One:
			return 0, usage("argument %s: expected one argument", strings.Join(opt.Names, "/"))
		case OneOrMore:
			return 0, usage("argument %s: expected at least one argument", strings.Join(opt.Names, "/"))
		case None, Optional:
			values = []string{truth(opt, name)}
		}
	} else if err := opt.check(values); err != nil {
		return 0, err
	}
	if opt.Type == typeAppend {
		values = slices.Concat(a.Values[dest], values)
	}
	a.Values[dest] = values
	return n, nil
}

func truth(opt *Option, name string) string {
	if opt.Type == typeBool && strings.HasPrefix(name, "--no-") && name != opt.Names[0] {
		return "false"
	}
	return "true"
}
