package catalogue

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"hotseat.dev/hotseat/launcher/inference"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Kind says what became of a model between two catalogues.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Same    Kind = "same"
	// Restart: a running engine differs from the model; it takes the change by a restart.
	Restart Kind = "restart"
	// InPlace: the change says how the launcher treats the engine, which runs on.
	InPlace Kind = "in place"
)

// Change is what became of a model.
type Change struct {
	Model  string
	Kind   Kind
	Fields []string // that changed, with Restart and InPlace
}

// Diff tells what became of each model: first those that went, in the order of the old
// catalogue, then those of the new one in its order. Comments and the order of models,
// names and keys are no change, nor is another way to write a command line.
func Diff(old, now *Catalogue) []Change {
	var all []Change
	for _, m := range old.Models {
		if now.model(m.Name) < 0 {
			all = append(all, Change{Model: m.Name, Kind: Removed})
		}
	}
	for _, m := range now.Models {
		i := old.model(m.Name)
		if i < 0 {
			all = append(all, Change{Model: m.Name, Kind: Added})
			continue
		}
		all = append(all, m.changeFrom(&old.Models[i]))
	}
	return all
}

func (m *Model) changeFrom(old *Model) Change {
	c := Change{Model: m.Name, Kind: Same}
	compare := func(kind Kind, before, now map[string]any) {
		for _, field := range slices.Sorted(maps.Keys(now)) {
			if reflect.DeepEqual(before[field], now[field]) {
				continue
			}
			c.Fields = append(c.Fields, field)
			if c.Kind == Same {
				c.Kind = kind
			}
		}
	}
	compare(Restart, old.ofEngine(), m.ofEngine())
	compare(InPlace, old.ofLauncher(), m.ofLauncher())
	return c
}

// ofEngine are the fields that the engine was started with.
func (m *Model) ofEngine() map[string]any {
	return map[string]any{"engine": m.Engine, "options": m.Words(), "gpus": [2]any{m.GPUs.Count, full(m.GPUs.UUIDs)}, "gpu_memory": m.GPUMemory, "env": fullMap[launcherapi.EnvValue](m.Env)}
}

// Words is the command line, however it was written.
func (m *Model) Words() []string {
	if m.Options == "" {
		return m.Args
	}
	words, err := launcherapi.SplitOptions(m.Options)
	if err != nil {
		return []string{m.Options} // parse refuses it
	}
	return words
}

// ofLauncher are the fields that the launcher reads while the engine runs, or before its
// next start.
func (m *Model) ofLauncher() map[string]any {
	return map[string]any{
		"aliases": sorted(m.Aliases), "priority": m.Priority, "pinned": m.Pinned, "preload": m.Preload,
		"sleep_after": [2]any{m.SleepAfter, m.SleepLevel}, "stop_after": m.StopAfter, "concurrency": m.Concurrency,
		"start_method": m.StartMethod, "restart": m.Restart,
		"params": canonical(m.Params), "params.variants": canonicalVariants(m.Variants),
	}
}

// canonical sorts what has no order, and makes empty what is absent.
func canonical(p inference.Params) inference.Params {
	return inference.Params{Strip: sorted(p.Strip), Set: fullMap[json.RawMessage](p.Set)}
}

func canonicalVariants(variants map[string]inference.Params) map[string]inference.Params {
	all := map[string]inference.Params{}
	for name, p := range variants {
		all[name] = canonical(p)
	}
	return all
}

func sorted(list []string) []string {
	list = full(list)
	slices.Sort(list)
	return list
}

func full(list []string) []string { return append([]string{}, list...) }

func fullMap[V any, K comparable](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
