package preload

import (
	"maps"
	"slices"
	"strings"
)

// variables is an environment by name, without those that the launcher gives
// each process for itself (HOTSEAT_…).
type variables map[string]string

func parse(env []string) variables {
	v := variables{}
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok && !strings.HasPrefix(name, ownPrefix) {
			v[name] = value
		}
	}
	return v
}

const ownPrefix = "HOTSEAT_"

func (v variables) list() []string {
	out := make([]string, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		out = append(out, name+"="+v[name])
	}
	return out
}

// loadTime tells the variables that count when a program is loaded: what was
// seen to be read by the imports or changed by them, and what is read where no
// Python code sees it.
type loadTime struct {
	names    map[string]bool
	prefixes []string
	runTime  map[string]bool // read again when it is needed
}

func (l loadTime) has(name string) bool {
	if l.runTime[name] {
		return false
	}
	return l.names[name] || slices.ContainsFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// differing names the load-time variables that are not the same in both.
func (l loadTime) differing(a, b variables) []string {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	var out []string
	for name := range names {
		x, inA := a[name]
		y, inB := b[name]
		if (x != y || inA != inB) && l.has(name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// with is the environment with those variables as in another.
func (v variables) with(other variables, names []string) variables {
	out := maps.Clone(v)
	for _, name := range names {
		if value, ok := other[name]; ok {
			out[name] = value
		} else {
			delete(out, name)
		}
	}
	return out
}
