package catalogue

func (d *decoder) selector(v value) Selector {
	s := Selector{N: 1}
	v.key = "a selector"
	v.object(s.fields(), "name", "strategy", "models")
	if s.Strategy == StrategySpillover {
		return s
	}
	s.N = 0
	if at, given := d.places[v.path+".n"]; given && s.Strategy != "" {
		d.failAt(at, "n goes with the strategy %s, not with %s", StrategySpillover, s.Strategy)
	}
	return s
}

func (d *decoder) profile(v value) Profile {
	var p Profile
	v.key = "a profile"
	v.object(p.fields(), "name", "pins")
	return p
}

func (s *Selector) fields() []field {
	return []field{
		{"name", func(v value) { s.Name = v.name() }},
		{"strategy", func(v value) {
			s.Strategy = v.choice(StrategyNearest, StrategyPin, StrategySpillover, "warm")
			if s.Strategy == "warm" { // as llama-swap names it
				s.Strategy = StrategyNearest
			}
		}},
		{"models", func(v value) {
			s.Models = v.names()
			if len(s.Models) == 0 && kindOf(v.node) == "a list" {
				v.fail("models is an empty list: name those that the selector chooses from")
			}
		}},
		{"n", func(v value) { v.integer(&s.N, 1) }},
	}
}

func (p *Profile) fields() []field {
	return []field{
		{"name", func(v value) { p.Name = v.name() }},
		{"pins", func(v value) {
			p.Pins = map[string]string{}
			empty := true
			v.entries(func(key, of value) {
				empty = false
				target := ""
				if kindOf(of.node) != "nothing" {
					target = of.name()
				}
				if name := (value{key.d, key.node, key.path, "a pin"}).nameOf(key.key); name != "" {
					p.Pins[name] = target
				}
			})
			if empty && kindOf(v.node) == "a mapping" {
				v.fail("pins is empty: say what names stand for, as in \"fast: qwen-small\"")
			}
		}},
	}
}
