package catalogue

import (
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
)

// claim is what a name stands for, and where it was given.
type claim struct {
	what  string
	place Place
}

// check finds mistakes that show only between models, selectors and profiles.
func (d *decoder) check(c *Catalogue) {
	models := map[string]claim{} // by each name of a model
	all := map[string]claim{}    // of selectors too
	for i := range c.Models {
		d.claimModel(&c.Models[i], fmt.Sprintf("models[%d]", i), all)
	}
	for name, of := range all {
		models[name] = of
	}
	for i, s := range c.Selectors {
		d.claim(all, s.Name, fmt.Sprintf("selectors[%d].name", i), "the name of a selector")
	}
	for i, s := range c.Selectors {
		d.checkTargets(s, fmt.Sprintf("selectors[%d].models", i), models, all)
	}
	profiles := map[string]claim{}
	for i, p := range c.Profiles {
		d.claim(profiles, p.Name, fmt.Sprintf("profiles[%d].name", i), "the name of a profile")
		for _, name := range sortedKeys(p.Pins) {
			at := fmt.Sprintf("profiles[%d].pins.%s", i, name)
			if target := p.Pins[name]; target != "" && all[target].what == "" {
				d.failAt(d.places[at], "there is no model or selector %q%s", target, meant(target, all))
			}
		}
	}
	if d.machine.GPUs != nil {
		d.checkGPUs(c)
	}
}

func (d *decoder) claimModel(m *Model, path string, all map[string]claim) {
	d.claim(all, m.Name, path+".name", "the name of a model")
	for j, alias := range m.Aliases {
		d.claim(all, alias, fmt.Sprintf("%s.aliases[%d]", path, j), "an alias of "+m.Name)
	}
	for _, variant := range sortedKeys(m.Variants) {
		if variant != m.Name && !slices.Contains(m.Aliases, variant) {
			d.claim(all, variant, path+".params.variants."+variant, "a variant of "+m.Name)
		}
	}
}

// claim records what a name stands for. A name stands for one thing.
func (d *decoder) claim(all map[string]claim, name, path, what string) {
	if name == "" {
		return // there was a fault
	}
	at := d.places[path]
	if before, taken := all[name]; taken {
		d.failAt(at, "%q is already %s (%s): give each its own name", name, before.what, before.place)
		return
	}
	all[name] = claim{what, at}
}

func (d *decoder) checkTargets(s Selector, path string, models, all map[string]claim) {
	for j, name := range s.Models {
		at := d.places[fmt.Sprintf("%s[%d]", path, j)]
		switch {
		case name == "":
		case slices.Contains(s.Models[:j], name):
			d.failAt(at, "%s is there twice: keep one", name)
		case models[name].what != "":
		case all[name].what != "":
			d.failAt(at, "%s is a selector: a selector chooses from models alone", name)
		default:
			d.failAt(at, "there is no model %q%s", name, meant(name, models))
		}
	}
}

func meant(name string, all map[string]claim) string {
	known := sortedKeys(all)
	if near := inference.NearestNames(name, known); len(near) > 0 {
		return ": did you mean " + near[0] + "?"
	}
	if len(known) == 0 {
		return ""
	}
	return "; there are " + inference.FewNames(known)
}

// checkGPUs finds models that need GPUs that the machine lacks.
func (d *decoder) checkGPUs(c *Catalogue) {
	there := d.machine.GPUs
	awake := 0 // GPUs that preloaded models need whole
	for i := range c.Models {
		m, path := &c.Models[i], fmt.Sprintf("models[%d]", i)
		for j, uuid := range m.GPUs.UUIDs {
			if uuid == "" || slices.Contains(there, uuid) {
				continue
			}
			near := "; there are " + inference.FewNames(there)
			if meant := config.Nearest(uuid, there); meant != "" {
				near = ": did you mean " + meant + "?"
			}
			d.failAt(d.places[fmt.Sprintf("%s.gpus[%d]", path, j)], "this machine has no GPU %s%s", uuid, near)
		}
		if n := m.GPUs.Count; n > len(there) {
			d.failAt(d.places[path+".gpus"], "the model needs %d GPUs, and this machine has %d", n, len(there))
			continue
		}
		if !m.Preload || !needsWholeGPUs(m) {
			continue
		}
		needs := max(1, m.GPUs.Count, len(m.GPUs.UUIDs))
		if awake += needs; awake > len(there) && awake-needs <= len(there) {
			d.failAt(d.places[path+".preload"], "the models that are preloaded up to here need %d GPUs, and this machine has %d: preload fewer, or give each a share of a GPU with --gpu-memory-utilization", awake, len(there))
		}
	}
}

// needsWholeGPUs reports whether no other model fits beside this one. vLLM takes nearly
// all memory of its GPUs, unless its arguments say how much it takes. How much
// llama.cpp takes is known only once it runs.
func needsWholeGPUs(m *Model) bool {
	line := strings.ReplaceAll(m.Options+" "+strings.Join(m.Args, " "), "_", "-")
	return m.Engine == "vllm" && !slices.ContainsFunc([]string{"--gpu-memory-utilization", "--kv-cache-memory", "--config"}, func(option string) bool {
		return strings.Contains(line, option)
	})
}
