package catalogue

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

const commandsKey = "commands"

// Command is an engine that the configuration makes of a program. Only the configuration can name
// programs: clients who could would run what they like.
type Command struct {
	Name      string   // models name it as their engine
	Program   []string // and its first arguments, which may contain ${PORT} or ${SOCKET}
	Health    string   // path that answers 200 once the program is up; HealthNone: it has none
	Inference []string // paths outside /v1/ that are work for the model
	ModelName string   // by which the program knows its model; empty: the model's name
}

// HealthNone is the Command.Health of a program that is up once it accepts connections.
const HealthNone = "none"

const defaultHealth = "/health"

// commands reads the commands of a file.
func (d *decoder) commands(body ast.Node, c *Catalogue) {
	m, ok := body.(*ast.MappingNode)
	if !ok {
		return // document says so
	}
	for _, entry := range m.Values {
		if keyText(entry.Key) == commandsKey {
			of := d.value(entry.Value, commandsKey, commandsKey)
			of.section(func() int { return len(c.Commands) }, func(item value) { c.Commands = append(c.Commands, d.command(item)) })
		}
	}
}

func (d *decoder) command(v value) Command {
	m := Command{Health: defaultHealth}
	v.key = "a command"
	v.object(d.commandFields(&m), "name", "program")
	if path := v.path + ".name"; slices.Contains(d.machine.Engines, m.Name) {
		d.failAt(d.places[path], "%s is an engine of the launcher: give the command another name", m.Name)
	} else {
		d.claim(d.named, m.Name, path, "the name of a command")
	}
	return m
}

func (d *decoder) commandFields(m *Command) []field {
	return []field{
		{"name", func(v value) { m.Name = v.commandName() }},
		{"program", func(v value) { m.Program = v.program() }},
		{"health", func(v value) { m.Health = v.health() }},
		{"inference", func(v value) {
			v.items(func(_ int, item value) { m.Inference = append(m.Inference, item.urlPath()) })
		}},
		{"model_name", func(v value) { m.ModelName = v.name() }},
	}
}

var commandName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (v value) commandName() string {
	name := v.text("a string")
	if name != "" && !commandName.MatchString(name) {
		v.fail("%s must begin with a letter or digit, then have letters, digits, '.', '_' or '-', and at most 64 characters, not %.70q", v.key, name)
		return ""
	}
	return name
}

// program reads a program and its arguments.
func (v value) program() []string {
	var all []string
	v.items(func(i int, item value) {
		word := item.scalar("a string")
		if i == 0 {
			item.key = "the program"
			word = item.executable(word)
		}
		if strings.ContainsRune(word, 0) {
			item.fail("%s holds a zero byte", item.key)
		}
		all = append(all, word)
	})
	if len(all) == 0 && kindOf(v.node) == "a list" {
		v.fail("program is an empty list: give the path of a program, and its arguments")
	}
	return all
}

// executable checks that there is a program.
func (v value) executable(word string) string {
	switch {
	case word == "":
		v.fail("%s is empty: give its path, or its name on PATH", v.key)
	case strings.Contains(word, "/") && !filepath.IsAbs(word):
		v.fail("%s must be an absolute path or a name on PATH, not %q", v.key, word)
	case v.d.machine.LookPath != nil:
		if _, err := v.d.machine.LookPath(word); err != nil {
			v.fail("%s cannot be found: %v; give its path, or its name on PATH", v.key, err)
		}
	}
	return word
}

func (v value) health() string {
	if text, _ := stringOf(v.node); text == HealthNone {
		return text
	}
	return v.urlPath()
}

// urlPath reads a path of an API.
func (v value) urlPath() string {
	text := v.text(`a path such as "/health"`)
	if text == "" {
		return ""
	}
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#% ") || path.Clean(text) != cmp.Or(strings.TrimSuffix(text, "/"), "/") {
		v.fail("%s must be a path such as \"/health\", without a query, not %q", v.key, text)
		return ""
	}
	return text
}

// engines are the names that a model may give as its engine.
func (d *decoder) engines() []string { return slices.Concat(d.machine.Engines, sortedKeys(d.named)) }

func (d *decoder) isCommand(engine string) bool { return d.named[engine].what != "" }

func (p *printer) command(c Command) {
	p.first(c.Name)
	p.list(1, "program", c.Program)
	if c.Health != defaultHealth {
		p.field(1, "health", scalar(c.Health))
	}
	p.list(1, "inference", c.Inference)
	if c.ModelName != "" {
		p.field(1, "model_name", scalar(c.ModelName))
	}
}
