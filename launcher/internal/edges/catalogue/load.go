package catalogue

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

// source is one file with models.
type source struct {
	name string
	data []byte
	// settings says whether the file is the configuration file, whose other keys are
	// settings, which package config checks.
	settings bool
}

// Load reads the catalogue from the configuration file and the files *.yaml, *.yml and
// *.json of the folder conf.d beside it, in the order of their names. The error is a
// Faults; the catalogue is nil then.
func Load(file string, machine Machine) (*Catalogue, error) {
	sources, err := read(file)
	if err != nil {
		return nil, err
	}
	return parse(sources, machine)
}

func read(file string) ([]source, error) {
	var sources []source
	var faults Faults
	add := func(name string, settings bool) {
		data, err := os.ReadFile(name)
		if err != nil {
			faults = append(faults, unreadable(name, err))
		}
		sources = append(sources, source{name, data, settings})
	}
	add(file, true)
	folder := Folder(file)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		faults = append(faults, unreadable(folder, err))
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			add(filepath.Join(folder, name), false)
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return sources, nil
}

func unreadable(name string, err error) Fault {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return Fault{Place{File: name}, "cannot read it: " + err.Error()}
}

// parse reads the catalogue of all files.
func parse(sources []source, machine Machine) (*Catalogue, error) {
	d := decoder{machine: machine, places: map[string]Place{}, named: map[string]claim{}}
	c := &Catalogue{}
	bodies := map[string]ast.Node{}
	for _, s := range sources {
		d.file = s.name
		body, err := config.Document(s.data)
		if malformed := (*config.YAMLError)(nil); errors.As(err, &malformed) {
			d.failAt(Place{s.name, malformed.Line, malformed.Column}, "%s", malformed.Problem)
			continue
		}
		if body != nil {
			bodies[s.name] = body
			d.commands(body, c) // a model of any file may have a command of any file
		}
	}
	for _, s := range sources {
		if d.file = s.name; bodies[s.name] != nil {
			d.document(bodies[s.name], s.settings, c)
		}
	}
	d.check(c)
	if len(d.faults) == 0 {
		c.commands = d.commandPlaces(c)
		return c, nil
	}
	order := map[string]int{}
	for i, s := range sources {
		order[s.name] = i
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil, d.faults
}

func (d *decoder) commandPlaces(c *Catalogue) map[string]Place {
	all := map[string]Place{}
	for i, m := range c.Models {
		path := fmt.Sprintf("models[%d]", i)
		all[m.Name] = cmp.Or(d.places[path+".options"], d.places[path+".args"], d.places[path+".name"]) // a command may need no arguments
	}
	return all
}

// document reads the sections of one file.
func (d *decoder) document(body ast.Node, settings bool, c *Catalogue) {
	top := value{d, body, "", "the file"}
	top.entries(func(key, of value) {
		switch key.key {
		case commandsKey: // commands has read it
		case "models":
			of.section(func() int { return len(c.Models) }, func(item value) { c.Models = append(c.Models, d.model(item)) })
		case "selectors":
			of.section(func() int { return len(c.Selectors) }, func(item value) { c.Selectors = append(c.Selectors, d.selector(item)) })
		case "profiles":
			of.section(func() int { return len(c.Profiles) }, func(item value) { c.Profiles = append(c.Profiles, d.profile(item)) })
		default:
			if !settings {
				key.fail("there is no section %q%s; settings stand in the configuration file", key.key, suggest(key.key, config.CatalogueKeys))
			}
		}
	})
}

// section reads the items of a list. The sections of all files are counted through.
func (v value) section(count func() int, read func(value)) {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok {
		v.mustBe("a list, each item as in \"- name: NAME\"")
		return
	}
	for _, node := range list.Values {
		read(v.d.value(node, v.key+"["+strconv.Itoa(count())+"]", v.key))
	}
}
