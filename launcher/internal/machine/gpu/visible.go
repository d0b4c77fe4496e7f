package gpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// envVisible is the variable by which users of CUDA are given some of a machine's GPUs.
const envVisible = "CUDA_VISIBLE_DEVICES"

// everyGPU in Options.Visible stands for all GPUs, whatever the environment says.
const everyGPU = "all"

// limited is a provider of which some GPUs are used. They keep their indices. The memory of
// the others can still be read: an instance may live there that was started before the
// limit.
type limited struct {
	Provider
	devices []Device
}

// limit leaves the GPUs of Options.Visible:
//
//	Visible        the GPUs
//	all            all
//	GPUs           those; each has to be there
//	empty          those of CUDA_VISIBLE_DEVICES, read as CUDA does: the list ends at the
//	               first word that names no GPU. All, if there is no such variable, or if the
//	               GPUs are simulated
func limit(p Provider, opts Options) (Provider, error) {
	if slices.Equal(opts.Visible, []string{everyGPU}) {
		return p, nil
	}
	if len(opts.Visible) > 0 {
		chosen, unknown := choose(p.Devices(), opts.Visible)
		if unknown != "" {
			return nil, fmt.Errorf("--visible-gpus names GPU %q, which is not here; there are %s", unknown, names(p.Devices()))
		}
		return &limited{p, chosen}, nil
	}
	text, given := os.LookupEnv(envVisible)
	if !given || p.Kind() != kindNVML {
		return p, nil
	}
	chosen, _ := choose(p.Devices(), strings.Split(text, ","))
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s=%s leaves no GPU; there are %s; unset it, or choose GPUs by --visible-gpus", envVisible, text, names(p.Devices()))
	}
	opts.Logger.Warn("using the GPUs of "+envVisible+" alone, counted in the order of the PCI bus; --visible-gpus chooses others", envVisible, text, "gpus", names(chosen))
	return &limited{p, chosen}, nil
}

// choose returns the devices that words name, in the order of their indices, up to the
// first word that names none.
func choose(devices []Device, words []string) (chosen []Device, unknown string) {
	named := map[string]bool{}
	for _, word := range words {
		found := false
		for _, d := range devices {
			if d.IsNamed(strings.TrimSpace(word)) {
				named[d.UUID], found = true, true
			}
		}
		if !found {
			unknown = word
			break
		}
	}
	for _, d := range devices {
		if named[d.UUID] {
			chosen = append(chosen, d)
		}
	}
	return chosen, unknown
}

// IsNamed reports whether a word names the device: its index, its UUID, or the beginning of
// its UUID. The index of a GPU in MIG mode names all its MIG devices.
func (d Device) IsNamed(word string) bool {
	if word == strconv.Itoa(d.Index) {
		return true
	}
	kind, id, _ := strings.Cut(word, "-")
	return (kind == "GPU" || kind == "MIG") && id != "" && strings.HasPrefix(d.UUID, word)
}

func names(devices []Device) string {
	var all []string
	for _, d := range devices {
		all = append(all, fmt.Sprintf("%d (%s)", d.Index, d.UUID))
	}
	return strings.Join(all, ", ")
}

func (l *limited) Devices() []Device { return slices.Clone(l.devices) }

func (l *limited) AllDevices() []Device { return l.Provider.Devices() }
