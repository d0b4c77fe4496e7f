package catalogue

import (
	"encoding/json"
	"maps"
	"slices"

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

// Resolve says what a name means while a profile is chosen; empty: none is. The error is
// an *[inference.UnknownModel].
func (c *Catalogue) Resolve(name, profile string) (Target, error) {
	target := name
	for _, p := range c.Profiles {
		if p.Name != profile {
			continue
		}
		if pin, pinned := p.Pins[name]; pinned {
			if pin == "" {
				return Target{}, &inference.UnknownModel{Name: name, Off: profile}
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
	return Target{}, inference.NewUnknownModel(name, c.Names())
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
