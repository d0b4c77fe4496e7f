package catalogue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/inference"
)

// Target is what a client's model name means.
type Target struct {
	Selector   string // empty: the name is that of a model
	Strategy   string
	N          int // with StrategySpillover
	Candidates []Candidate
}

// Candidate is one model that may answer, with what is changed in the request then.
type Candidate struct {
	Model  string
	Params inference.Params
}

// UnknownModel says that no model or selector has the name.
type UnknownModel struct {
	Name    string
	Off     string   // the profile that turned the name off
	Nearest []string // names that may have been meant, the nearest first
	All     []string
}

func (e *UnknownModel) Error() string {
	text := fmt.Sprintf("there is no model %q", e.Name)
	if e.Off != "" {
		return fmt.Sprintf("the model %q is turned off by the profile %s", e.Name, e.Off)
	}
	if len(e.All) == 0 {
		return text + ": none is configured"
	}
	if len(e.Nearest) == 0 {
		return text + ". There are: " + few(e.All)
	}
	return text + ": did you mean " + strings.Join(e.Nearest, " or ") + "? There are: " + few(e.All)
}

// Resolve says what a name means while a profile is chosen; empty: none is. The error is
// an *UnknownModel.
func (c *Catalogue) Resolve(name, profile string) (Target, error) {
	target := name
	for _, p := range c.Profiles {
		if p.Name != profile {
			continue
		}
		if pin, pinned := p.Pins[name]; pinned {
			if pin == "" {
				return Target{}, &UnknownModel{Name: name, Off: profile}
			}
			target = pin
		}
	}
	if candidate, ok := c.candidate(target); ok {
		return Target{Strategy: StrategyPin, Candidates: []Candidate{candidate}}, nil
	}
	for _, s := range c.Selectors {
		if s.Name != target {
			continue
		}
		found := Target{Selector: s.Name, Strategy: s.Strategy, N: s.N}
		for _, model := range s.Models {
			candidate, _ := c.candidate(model) // parse refuses unknown ones
			found.Candidates = append(found.Candidates, candidate)
		}
		return found, nil
	}
	all := c.Names()
	return Target{}, &UnknownModel{Name: name, Nearest: inference.NearestNames(name, all), All: all}
}

// candidate finds a model by any of its names.
func (c *Catalogue) candidate(name string) (Candidate, bool) {
	for i := range c.Models {
		m := &c.Models[i]
		if slices.Contains(m.Names(), name) {
			return Candidate{m.Name, merge(m.Params, m.Variants[name])}, true
		}
	}
	return Candidate{}, false
}

// merge gives the change that two of them make, the second one after the first.
func merge(first, second inference.Params) inference.Params {
	p := inference.Params{Set: maps.Clone(first.Set)}
	for _, name := range second.Strip {
		delete(p.Set, name)
	}
	for name, value := range second.Set {
		if p.Set == nil {
			p.Set = map[string]json.RawMessage{}
		}
		p.Set[name] = value
	}
	for _, name := range slices.Concat(first.Strip, second.Strip) {
		if _, set := p.Set[name]; !set && !slices.Contains(p.Strip, name) {
			p.Strip = append(p.Strip, name)
		}
	}
	return p
}

// Names are all names that clients may ask for, those of models first.
func (c *Catalogue) Names() []string {
	var all []string
	for i := range c.Models {
		all = append(all, c.Models[i].Names()...)
	}
	for _, s := range c.Selectors {
		all = append(all, s.Name)
	}
	return all
}
