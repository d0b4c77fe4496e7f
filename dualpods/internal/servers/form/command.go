package form

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

const (
	commandField = containerField + ".command"
	argsField    = containerField + ".args"
)

// whatIsRight says which commands start vLLM.
const whatIsRight = "it should be vllm serve …, python3 -m vllm.entrypoints.openai.api_server …, sh -c with one of these, or no command at all, so that args are those of vllm serve"

// command reads the engine's arguments into the form and returns the port that
// they name, or 0.
func (w *work) command(theirs, own *corev1.Container, vars variables) (port int32) {
	switch {
	case len(theirs.Command) > 0 && slices.Equal(theirs.Command, own.Command):
		w.invalid(commandField, "is the requester's own: the patch should set another, or null; "+whatIsRight)
		return 0
	case len(theirs.Args) > 0 && slices.Equal(theirs.Args, own.Args):
		w.invalid(argsField, "are the requester's own: the patch should set others, or null")
		return 0
	case len(theirs.Command)+len(theirs.Args) == 0:
		w.invalid(commandField, "neither command nor args say what to serve; "+whatIsRight)
		return 0
	}
	field := argsField
	var words []string
	for _, word := range theirs.Command {
		field = commandField
		words = append(words, w.expand(word, vars, commandField))
	}
	for _, word := range theirs.Args {
		words = append(words, w.expand(word, vars, argsField))
	}
	if len(theirs.Command) > 0 {
		var wrong string
		if words, wrong = engineArgs(words, true); wrong != "" {
			w.invalid(commandField, wrong)
			return 0
		}
	}
	w.form.Args, port = w.takeAddress(words, field)
	return port
}

var (
	python    = regexp.MustCompile(`^python(3(\.[0-9]+)?)?$`)
	shell     = regexp.MustCompile(`^(sh|bash|dash|ash)$`)
	shellFlag = regexp.MustCompile(`^-[eulx]*c$`)
)

// engineArgs returns the arguments of `vllm serve` in a command line, or says
// what is wrong with it.
func engineArgs(words []string, shellToo bool) (args []string, wrong string) {
	program := path.Base(words[0])
	rest := words[1:]
	switch {
	case program == "vllm" && len(rest) > 0 && rest[0] == "serve":
		return rest[1:], ""
	case python.MatchString(program):
		rest = slices.Clone(rest)
		for len(rest) > 0 && rest[0] == "-u" { // output is not held back
			rest = rest[1:]
		}
		if len(rest) > 1 && rest[0] == "-m" && rest[1] == "vllm.entrypoints.openai.api_server" {
			return rest[2:], ""
		}
	case shellToo && shell.MatchString(program) && len(rest) > 1 && shellFlag.MatchString(rest[0]):
		line, wrong := shellWords(rest[1])
		if wrong != "" {
			return nil, fmt.Sprintf("%s -c: %s", program, wrong)
		}
		if len(line) > 1 && line[0] == "exec" {
			line = line[1:]
		}
		return engineArgs(line, false)
	}
	return nil, fmt.Sprintf("%q does not start vLLM in a way that is known here; %s", abbreviated(words), whatIsRight)
}

// shellWords splits a shell's command line into words as that shell would, or
// says why it is more than words.
func shellWords(script string) (words []string, wrong string) {
	const right = "it should be one plain command with nothing for a shell to do"
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Sprintf("cannot be read as a shell's command line: %v", err)
	}
	if len(file.Stmts) != 1 {
		return nil, fmt.Sprintf("holds %d commands: %s", len(file.Stmts), right)
	}
	stmt := file.Stmts[0]
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || stmt.Negated || stmt.Background || stmt.Coprocess || stmt.Disown || len(stmt.Redirs) > 0 {
		return nil, "is more than one plain command: " + right
	}
	if len(call.Assigns) > 0 {
		return nil, "sets a variable: env is the place for that"
	}
	for _, word := range call.Args {
		if !plain(word) {
			var text strings.Builder
			_ = syntax.NewPrinter().Print(&text, word)
			return nil, fmt.Sprintf("the shell would replace something in %s: %s; quote it, and write variables as $(NAME), which Kubernetes expands from env", text.String(), right)
		}
	}
	words, err = expand.Fields(nil, call.Args...)
	if err != nil {
		return nil, fmt.Sprintf("cannot be split into words: %v", err)
	}
	return words, ""
}

// expansions are what a shell replaces outside of quotes: names of files, home
// folders, alternatives in braces.
var expansions = regexp.MustCompile(`^~|[=:]~|[*?\[]|\{[^}]*(,|\.\.)`)

// escaped is a character that has lost its meaning.
var escaped = regexp.MustCompile(`(?s)\\.`)

// plain tells whether a shell takes a word as it stands, but for quotes.
func plain(word *syntax.Word) bool {
	var bare strings.Builder // what stands outside of quotes
	for _, part := range word.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			bare.WriteString(escaped.ReplaceAllString(part.Value, "x"))
		case *syntax.SglQuoted:
			if part.Dollar {
				return false
			}
			bare.WriteByte('x')
		case *syntax.DblQuoted:
			if part.Dollar || slices.ContainsFunc(part.Parts, replaced) {
				return false
			}
			bare.WriteByte('x')
		default:
			return false
		}
	}
	return !expansions.MatchString(bare.String())
}

func replaced(part syntax.WordPart) bool {
	_, literal := part.(*syntax.Lit)
	return !literal
}

// abbreviated gives the beginning of a command line, for a message.
func abbreviated(words []string) string {
	const enough = 80
	text := []rune(strings.ToValidUTF8(strings.Join(words, " "), "?"))
	if len(text) > enough {
		return string(text[:enough]) + "…"
	}
	return string(text)
}
