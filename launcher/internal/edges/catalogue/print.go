package catalogue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// YAML writes the catalogue as sections of a configuration file. Load reads the same
// catalogue from it.
func (c *Catalogue) YAML() []byte {
	var p printer
	section(&p, commandsKey, c.Commands, p.command)
	section(&p, "models", c.Models, p.model)
	section(&p, "selectors", c.Selectors, p.selector)
	section(&p, "profiles", c.Profiles, p.profile)
	return p.out.Bytes()
}

type printer struct{ out bytes.Buffer }

func section[T any](p *printer, name string, items []T, write func(T)) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(&p.out, "%s:\n", name)
	for _, item := range items {
		write(item)
	}
}

// field writes a line at a depth of two blanks each.
func (p *printer) field(depth int, key, value string) {
	if value != "" {
		value = " " + value
	}
	fmt.Fprintf(&p.out, "%s%s:%s\n", strings.Repeat("  ", depth), key, value)
}

// entry writes a line whose key is the user's.
func (p *printer) entry(depth int, key, value string) { p.field(depth, scalar(key), value) }

// first writes the name that an item begins with.
func (p *printer) first(name string) { fmt.Fprintf(&p.out, "- name: %s\n", scalar(name)) }

func (p *printer) model(m Model) {
	p.first(m.Name)
	p.list(1, "aliases", m.Aliases)
	p.field(1, "engine", scalar(m.Engine))
	if m.Options != "" {
		p.field(1, "options", scalar(m.Options))
	}
	p.list(1, "args", m.Args)
	p.list(1, "gpus", m.GPUs.UUIDs)
	p.number("gpus", m.GPUs.Count)
	if m.GPUMemory > 0 {
		p.field(1, "gpu_memory", strconv.FormatInt(m.GPUMemory, 10))
	}
	p.env(m.Env)
	p.number("priority", m.Priority)
	p.bool("pinned", m.Pinned)
	p.bool("preload", m.Preload)
	switch {
	case m.SleepAfter == 0:
	case m.SleepLevel == 1:
		p.field(1, "sleep_after", duration(m.SleepAfter))
	default:
		p.field(1, "sleep_after", fmt.Sprintf("{%d: %s}", m.SleepLevel, duration(m.SleepAfter)))
	}
	if m.StopAfter > 0 {
		p.field(1, "stop_after", duration(m.StopAfter))
	}
	p.number("concurrency", m.Concurrency)
	if m.StartMethod != "" {
		p.field(1, "start_method", m.StartMethod)
	}
	if m.Restart != RestartOnFailure {
		p.field(1, "restart", m.Restart)
	}
	if len(m.Params.Strip)+len(m.Params.Set)+len(m.Variants) > 0 {
		p.field(1, "params", "")
		p.params(2, m.Params)
		p.variants(m.Variants)
	}
}

func (p *printer) list(depth int, key string, items []string) {
	if len(items) == 0 {
		return
	}
	p.field(depth, key, "")
	for _, item := range items {
		fmt.Fprintf(&p.out, "%s- %s\n", strings.Repeat("  ", depth), scalar(item))
	}
}

func (p *printer) number(key string, n int) {
	if n != 0 {
		p.field(1, key, strconv.Itoa(n))
	}
}

func (p *printer) bool(key string, b bool) {
	if b {
		p.field(1, key, "true")
	}
}

func (p *printer) env(env map[string]launcherapi.EnvValue) {
	if len(env) == 0 {
		return
	}
	p.field(1, "env", "")
	for _, name := range sortedKeys(env) {
		if file := env[name].FromFile; file != "" {
			p.entry(2, name, "{from_file: "+quoted(file)+"}")
			continue
		}
		p.entry(2, name, scalar(env[name].Value))
	}
}

func (p *printer) params(depth int, params inference.Params) {
	p.list(depth, "strip", params.Strip)
	if len(params.Set) == 0 {
		return
	}
	p.field(depth, "set", "")
	for _, name := range sortedKeys(params.Set) {
		p.entry(depth+1, name, string(params.Set[name])) // JSON is YAML
	}
}

func (p *printer) variants(variants map[string]inference.Params) {
	if len(variants) == 0 {
		return
	}
	p.field(2, "variants", "")
	for _, name := range sortedKeys(variants) {
		v := variants[name]
		if len(v.Strip)+len(v.Set) == 0 {
			p.entry(3, name, "{}")
			continue
		}
		p.entry(3, name, "")
		p.params(4, v)
	}
}

func (p *printer) selector(s Selector) {
	p.first(s.Name)
	p.field(1, "strategy", s.Strategy)
	p.list(1, "models", s.Models)
	p.number("n", s.N)
}

func (p *printer) profile(f Profile) {
	p.first(f.Name)
	p.field(1, "pins", "")
	for _, name := range sortedKeys(f.Pins) {
		target := "null"
		if f.Pins[name] != "" {
			target = scalar(f.Pins[name])
		}
		p.entry(2, name, target)
	}
}

// plain matches texts that YAML reads as strings without quotes, apart from words.
var plain = regexp.MustCompile(`^(--?|/)?[A-Za-z][A-Za-z0-9]*([._/-][A-Za-z0-9]+)*$`)

// words are those that YAML, of one version or the other, reads as something else.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// scalar writes a string, with quotes where they are needed.
func scalar(text string) string {
	if plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	return quoted(text)
}

func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string can always be encoded
	return strings.TrimSuffix(out.String(), "\n")
}

// duration writes 5m for five minutes, where the standard library has 5m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
