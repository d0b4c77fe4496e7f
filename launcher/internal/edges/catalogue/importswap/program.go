package importswap

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/kballard/go-shellquote"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
)

// portMacro is where a program of llama-swap is to listen. The launcher's commands have the same
// text for it.
const portMacro = "${PORT}"

// ofCommand are the keys of a model that become a part of its command.
var ofCommand = []any{"proxy", "checkEndpoint", "useModelName"}

// engine finds or makes the engine of a model. It reports whether the model sleeps, rather than
// ends, when it is not used, and returns the fields that are not a part of a command.
func (im *importer) engine(where string, m *catalogue.Model, fields yaml.MapSlice, cmd string) (sleeps bool, others yaml.MapSlice) {
	sleeps = im.command(where, m, cmd)
	if m.Engine != "" || !im.program(where, m, fields, cmd) {
		return sleeps, fields
	}
	return false, slices.DeleteFunc(slices.Clone(fields), func(f yaml.MapItem) bool { return slices.Contains(ofCommand, f.Key) })
}

// program makes a command of the program of a model, and reports whether it could.
func (im *importer) program(where string, m *catalogue.Model, fields yaml.MapSlice, cmd string) bool {
	words, err := shellquote.Split(cmd)
	if err != nil || len(words) == 0 || !strings.Contains(cmd, portMacro) || strings.Contains(words[0], portMacro) || path.Base(words[0]) == wrapper {
		return false
	}
	c := catalogue.Command{Name: im.commandName(m.Name), Program: words, Health: "/health"}
	if strings.Contains(words[0], "/") && !path.IsAbs(words[0]) {
		im.note(where+".cmd", "%s must become an absolute path, or a name on PATH", words[0])
	}
	for _, word := range words {
		im.checkMacros(where+".cmd", strings.ReplaceAll(word, portMacro, ""))
	}
	if check, ok := get(fields, "checkEndpoint").(string); ok && check != "" {
		c.Health = check
	}
	if name, ok := get(fields, "useModelName").(string); ok {
		c.ModelName = name
	}
	if proxy, ok := get(fields, "proxy").(string); ok && !ownAddress.MatchString(proxy) {
		im.note(where+".proxy", "left out: the launcher reaches a command at http://127.0.0.1:%s alone", portMacro)
	}
	if slices.Contains([]string{"docker", "podman"}, path.Base(words[0])) {
		im.note(where+".cmd", "the launcher ends %s, and not the container: if it does not end its container on SIGTERM, or is killed, the container runs on", path.Base(words[0]))
	}
	im.catalogue.Commands = append(im.catalogue.Commands, c)
	m.Engine = c.Name
	return true
}

// ownAddress matches the address at which the launcher reaches a command.
var ownAddress = regexp.MustCompile(`^http://(127\.0\.0\.1|localhost):\$\{PORT\}/?$`)

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// commandName makes the name of a command of that of its model.
func (im *importer) commandName(model string) string {
	base := strings.TrimLeft(notInName.ReplaceAllString(model, "-"), "._-")
	base = "run-" + base[:min(len(base), 50)]
	name := base
	for n := 2; slices.ContainsFunc(im.catalogue.Commands, func(c catalogue.Command) bool { return c.Name == name }); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	return name
}
