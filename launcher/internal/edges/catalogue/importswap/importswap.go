// Package importswap makes a catalogue of a configuration file of llama-swap, and names
// what has no counterpart.
package importswap

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
)

// Note is something that was left out or changed, and where it stands in the file.
type Note struct {
	Where string // such as models.qwen.cmdStop
	Text  string
}

func (n Note) String() string { return n.Where + ": " + n.Text }

// importer goes through one file.
type importer struct {
	env       func(string) (string, bool)
	macros    []macro
	globalTTL time.Duration
	catalogue catalogue.Catalogue
	skipped   map[string]bool // models that were left out
	notes     []Note
}

// Import reads a configuration file of llama-swap. env tells the environment variables that
// the file refers to.
func Import(data []byte, env func(string) (string, bool)) (*catalogue.Catalogue, []Note, error) {
	var file yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.UseOrderedMap()); err != nil {
		return nil, nil, fmt.Errorf("this is no configuration of llama-swap: %s", yaml.FormatError(err, false, false))
	}
	im := &importer{env: env, skipped: map[string]bool{}}
	if _, ok := get(file, "models").(yaml.MapSlice); !ok {
		return nil, nil, errors.New("this is no configuration of llama-swap: it has no mapping of models")
	}
	im.macros = macrosOf(get(file, "macros"))
	im.globalTTL = seconds(get(file, "globalTTL"))
	// Models come first, since the other sections refer to them.
	order := []string{"models", "hooks", "groups", "routing", "selectors", "profiles"}
	slices.SortStableFunc(file, func(a, b yaml.MapItem) int {
		return cmp.Compare(rank(order, a.Key), rank(order, b.Key))
	})
	for _, item := range file {
		im.section(fmt.Sprint(item.Key), item.Value)
	}
	return &im.catalogue, im.notes, nil
}

// rank is the place of a key in an order; keys that it lacks come last.
func rank(order []string, key any) int {
	i := slices.Index(order, fmt.Sprint(key))
	if i < 0 {
		return len(order)
	}
	return i
}

func (im *importer) section(key string, value any) {
	switch key {
	case "models":
		for _, item := range mapping(value) {
			im.model(fmt.Sprint(item.Key), mapping(item.Value))
		}
	case "macros", "globalTTL":
	case "hooks":
		im.hooks(mapping(value))
	case "groups":
		im.groups("groups", mapping(value))
	case "routing":
		im.routing(mapping(value))
	case "selectors":
		im.selectors(mapping(value))
	case "profiles":
		im.profiles(mapping(value))
	default:
		im.without(key)
	}
}

func (im *importer) note(where, format string, args ...any) {
	im.notes = append(im.notes, Note{where, fmt.Sprintf(format, args...)})
}

// counterparts say what to use in place of settings that are no part of a catalogue.
var counterparts = map[string]string{
	"apiKeys":            "the launcher's front door has --front-door-token-file",
	"healthCheckTimeout": "the launcher has --start-timeout",
	"logLevel":           "the launcher has --log-level",
	"peers":              "other launchers and services have no place in a catalogue",
	"sendLoadingState":   "each client asks for it, by the header X-Hotseat-Progress: reasoning",
	"startPort":          "the launcher chooses ports by itself",
	"unloadTimeout":      "the launcher has --stop-grace",
	"timeouts":           "the launcher has time limits of its own",
	"proxy":              "the launcher knows where its engines listen",
	"checkEndpoint":      "the launcher knows when its engines are ready",
	"cmdStop":            "the launcher stops its engines by itself",
	"useModelName":       "the launcher tells engines the name that they serve",
	"capabilities":       "the launcher asks the engine",
}

// without notes a key that has no counterpart.
func (im *importer) without(where string) {
	key := where[strings.LastIndexByte(where, '.')+1:]
	if instead := counterparts[key]; instead != "" {
		im.note(where, "left out: %s", instead)
		return
	}
	im.note(where, "left out: it has no counterpart")
}

// find gives a model of the catalogue by any of its names.
func (im *importer) find(name string) *catalogue.Model {
	target, err := im.catalogue.Resolve(name, "")
	if err != nil || target.Selector != "" {
		return nil
	}
	i := slices.IndexFunc(im.catalogue.Models, func(m catalogue.Model) bool { return m.Name == target.Candidates[0].Model })
	return &im.catalogue.Models[i]
}

// missing notes a name that is none of a model.
func (im *importer) missing(where, name string) {
	if im.skipped[name] {
		im.note(where, "%s is left out, because that model is", name)
		return
	}
	im.note(where, "%s is left out: there is no such model", name)
}

func (im *importer) hooks(hooks yaml.MapSlice) {
	for _, item := range mapping(get(hooks, "on_startup")) {
		where := "hooks.on_startup." + fmt.Sprint(item.Key)
		if item.Key != "preload" {
			im.without(where)
			continue
		}
		for _, name := range list(item.Value) {
			if m := im.find(name); m != nil {
				m.Preload = true
			} else {
				im.missing(where, name)
			}
		}
	}
}

// groups says what the launcher decides by itself: which models are awake together.
func (im *importer) groups(where string, groups yaml.MapSlice) {
	for _, item := range groups {
		group, at := mapping(item.Value), where+"."+fmt.Sprint(item.Key)
		if get(group, "persistent") != true {
			im.note(at, "left out: the launcher keeps models awake together where their memory fits")
			continue
		}
		for _, name := range list(get(group, "members")) {
			if m := im.find(name); m != nil {
				m.Pinned = true
			} else {
				im.missing(at+".members", name)
			}
		}
		im.note(at, "its members are pinned: they never go for another model")
	}
}

func (im *importer) routing(routing yaml.MapSlice) {
	router := mapping(get(routing, "router"))
	settings := mapping(get(router, "settings"))
	use := fmt.Sprint(get(router, "use"))
	if use == "matrix" {
		im.note("routing.router.settings.matrix", "left out: the launcher keeps models awake together where their memory fits, and measures what it costs to bring each back")
	} else {
		im.groups("routing.router.settings.groups", mapping(get(settings, "groups")))
	}
	fifo := mapping(get(mapping(get(mapping(get(routing, "scheduler")), "settings")), "fifo"))
	for _, item := range mapping(get(fifo, "priority")) {
		name := fmt.Sprint(item.Key)
		m, n := im.find(name), number(item.Value)
		if m == nil {
			im.missing("routing.scheduler.settings.fifo.priority", name)
			continue
		}
		m.Priority = n
	}
}

func (im *importer) selectors(selectors yaml.MapSlice) {
	for _, item := range selectors {
		s := catalogue.Selector{Name: fmt.Sprint(item.Key)}
		where := "selectors." + s.Name
		for _, field := range mapping(item.Value) {
			switch field.Key {
			case "strategy":
				s.Strategy = fmt.Sprint(field.Value)
			case "targets":
				for _, name := range list(field.Value) {
					if im.find(name) == nil {
						im.missing(where+".targets", name)
						continue
					}
					s.Models = append(s.Models, name)
				}
			case "settings":
				s.N = number(get(mapping(field.Value), "spillover"))
			default:
				im.without(where + "." + fmt.Sprint(field.Key))
			}
		}
		switch s.Strategy {
		case "warm":
			s.Strategy, s.N = catalogue.StrategyNearest, 0
		case catalogue.StrategySpillover:
			s.N = max(1, s.N)
		default:
			s.N = 0
		}
		if len(s.Models) == 0 {
			im.skipped[s.Name] = true
			im.note(where, "left out: none of its models is there")
			continue
		}
		im.catalogue.Selectors = append(im.catalogue.Selectors, s)
	}
}

func (im *importer) profiles(profiles yaml.MapSlice) {
	for _, item := range profiles {
		p := catalogue.Profile{Name: fmt.Sprint(item.Key), Pins: map[string]string{}}
		where := "profiles." + p.Name
		for _, field := range mapping(item.Value) {
			if field.Key != "pins" {
				im.without(where + "." + fmt.Sprint(field.Key))
				continue
			}
			for _, pin := range mapping(field.Value) {
				name, target := fmt.Sprint(pin.Key), ""
				if pin.Value != nil {
					target = fmt.Sprint(pin.Value)
				}
				if _, err := im.catalogue.Resolve(target, ""); target != "" && err != nil {
					im.missing(where+".pins."+name, target)
					continue
				}
				p.Pins[name] = target
			}
		}
		if len(p.Pins) == 0 {
			im.note(where, "left out: none of its pins is")
			continue
		}
		im.catalogue.Profiles = append(im.catalogue.Profiles, p)
	}
}

// get gives a value of a mapping; nil if it has none.
func get(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func mapping(value any) yaml.MapSlice {
	m, _ := value.(yaml.MapSlice)
	return m
}

func list(value any) []string {
	var all []string
	items, _ := value.([]any)
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

func number(value any) int {
	var n int
	_ = json.Unmarshal([]byte(fmt.Sprint(value)), &n) // 0 for what is no whole number
	return n
}

func seconds(value any) time.Duration { return time.Duration(max(0, number(value))) * time.Second }
