package preload

import (
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// This file gives each kind of GPU its own preloader. While vLLM is imported, it asks
// which GPU it will use, and keeps the answer and what follows from it. A process with
// another kind of GPU must not inherit that (spec/decisions/0131).

const (
	visibleDevices = "CUDA_VISIBLE_DEVICES"
	deviceOrder    = "CUDA_DEVICE_ORDER"
)

// gpuVariables are the variables by which an engine sees its GPUs.
var gpuVariables = []string{visibleDevices, deviceOrder}

// Kinds returns the kinds of some GPUs, in the order in which they first occur. GPUs of
// one product are of one kind, and so are the MIG devices of such a GPU.
func Kinds(gpus []gpu.Device) []string {
	var kinds []string
	for _, g := range gpus {
		if kind := kindOf(g); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func kindOf(g gpu.Device) string {
	product, _, _ := strings.Cut(g.Product, " MIG ") // NVML names a MIG device after its GPU
	return product
}

// parse returns an environment as the pool compares it. It names GPUs by their kinds:
//
//	no GPUs are known                         as in Options.Environ: GPUs do not count
//	some GPUs, all of the machine's one kind  as in Options.Environ: GPUs do not differ
//	otherwise                                 the first GPU of each kind that is seen
func (p *Pool) parse(env []string) variables {
	v := parse(env)
	seen := seenGPUs(p.opts.GPUs, v)
	if len(p.opts.GPUs) == 0 || len(seen) > 0 && len(Kinds(p.opts.GPUs)) == 1 {
		return v.with(p.own, gpuVariables)
	}
	v[visibleDevices] = firstOfKinds(p.opts.GPUs, Kinds(seen))
	return v
}

// seenGPUs returns the GPUs that a process with this environment sees, in its order. The
// list in the environment ends at the first word that names no GPU, as CUDA reads it.
func seenGPUs(gpus []gpu.Device, env variables) (seen []gpu.Device) {
	text, given := env[visibleDevices]
	if !given {
		return gpus
	}
	for word := range strings.SplitSeq(text, ",") {
		n := slices.IndexFunc(gpus, func(g gpu.Device) bool { return g.IsNamed(strings.TrimSpace(word)) })
		if n < 0 {
			break
		}
		seen = append(seen, gpus[n])
	}
	return seen
}

// firstOfKinds names the first GPU of each of the kinds, as a value of
// CUDA_VISIBLE_DEVICES.
func firstOfKinds(gpus []gpu.Device, kinds []string) string {
	first := make([]gpu.Device, len(kinds))
	for n, kind := range kinds {
		first[n] = gpus[slices.IndexFunc(gpus, func(g gpu.Device) bool { return kindOf(g) == kind })]
	}
	return byName(VisibleTo(first))[visibleDevices]
}

// VisibleTo returns the variables by which a process sees these GPUs alone.
func VisibleTo(gpus []gpu.Device) []string {
	out := make([]engine.GPU, len(gpus))
	for n, g := range gpus {
		out[n] = engine.GPU{UUID: g.UUID, Index: g.Index, MIG: g.MIG}
	}
	return engine.VisibleDevices(out)
}

// commonEnviron returns the environment of the common preloader. Where the machine has
// several kinds of GPU, it sees the first GPU alone, as most instances see one kind.
func commonEnviron(opts Options) []string {
	seen := seenGPUs(opts.GPUs, parse(opts.Environ))
	if len(Kinds(opts.GPUs)) < 2 || len(seen) == 0 {
		return opts.Environ
	}
	return append(slices.Clone(opts.Environ), VisibleTo(seen[:1])...)
}

// differenceText says in words by which variables the environment of a preloader differs
// from the common one.
func (p *Pool) differenceText(names []string, env variables) string {
	words := slices.Clone(names)
	if n := slices.Index(words, visibleDevices); n >= 0 {
		words[n] = "no GPU"
		if kinds := Kinds(seenGPUs(p.opts.GPUs, env)); len(kinds) > 0 {
			words[n] = "GPUs of the kind " + strings.Join(kinds, " and ")
		}
	}
	return strings.Join(words, ", ")
}
