package preload

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// fourGPUs is a machine with two kinds of GPU. GPU 2 is divided into MIG devices.
var fourGPUs = []gpu.Device{
	{UUID: "GPU-h0", Index: 0, Product: "NVIDIA H100"},
	{UUID: "GPU-l1", Index: 1, Product: "NVIDIA L4"},
	{UUID: "MIG-h2a", Index: 2, Product: "NVIDIA H100 MIG 1g.10gb", MIG: true},
	{UUID: "MIG-h2b", Index: 2, Product: "NVIDIA H100 MIG 3g.40gb", MIG: true},
	{UUID: "GPU-l3", Index: 3, Product: "NVIDIA L4"},
}

// withGPUs makes an engine that asks while it is imported which GPU it will use, keeps
// the answer, and chooses by it once and for all, as vLLM does.
func withGPUs(gpus ...gpu.Device) func(*fixture) {
	return func(f *fixture) {
		f.options.GPUs = gpus
		f.write("vllm/platforms.py", `
import functools, os

class Platform:
    device_type = "cpu"

    def is_cpu(self):
        return True

    @functools.cache
    def get_device_capability(self, device=0):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3")
        if not visible:
            return None
        first = visible.split(",")[device]
        return (8, 9) if first in ("1", "3", "GPU-l1", "GPU-l3") else (9, 0)

current_platform = Platform()
`)
		f.write("vllm/__init__.py", "from vllm.platforms import current_platform\nread = str(current_platform.get_device_capability())\n")
	}
}

// on returns the variables that the launcher sets for an instance on these GPUs.
func on(gpus ...gpu.Device) []string { return VisibleTo(gpus) }

func TestForkedEngineHasTheCapabilityOfItsOwnGPU(t *testing.T) {
	f := newFixture(t, withGPUs(fourGPUs...))
	for _, c := range []struct {
		name, capability string
		env              []string
	}{
		{"H100", "(9, 0)", on(fourGPUs[0])},
		{"L4", "(8, 9)", on(fourGPUs[1])},
		{"MIG device of H100", "(9, 0)", on(fourGPUs[3])},
		{"second L4", "(8, 9)", on(fourGPUs[4])},
		{"both kinds, L4 first", "(8, 9)", on(fourGPUs[4], fourGPUs[0])},
		{"no GPU", "None", []string{"CUDA_VISIBLE_DEVICES="}},
		{"every GPU", "(9, 0)", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.t = t
			f.ready(c.env...)
			want, got := f.startBoth(nil, c.env)
			assert.Equal(t, c.capability, want.Read)
			assert.Equal(t, want.Read, got.Read)
			assert.Equal(t, want.Env["CUDA_VISIBLE_DEVICES"], got.Env["CUDA_VISIBLE_DEVICES"])
		})
	}
	f.t = t
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	var differences []string
	for _, l := range f.pool.all {
		differences = append(differences, l.difference)
	}
	assert.Equal(t, []string{
		"", "GPUs of the kind NVIDIA L4", "GPUs of the kind NVIDIA L4 and NVIDIA H100",
		"CUDA_DEVICE_ORDER, no GPU", "CUDA_DEVICE_ORDER, GPUs of the kind NVIDIA H100 and NVIDIA L4",
	}, differences)
}

func TestEnginesOnGPUsOfOneKindShareAPreloader(t *testing.T) {
	f := newFixture(t, withGPUs(fourGPUs[1], fourGPUs[4]))
	f.ready()
	for _, env := range [][]string{on(fourGPUs[1]), on(fourGPUs[4]), on(fourGPUs[4], fourGPUs[1]), nil} {
		assert.NoError(t, f.pool.Check(append(f.environ(), env...)))
	}
	assert.Len(t, f.pool.List().Preloaders, 1)
	none := f.refusalReason("CUDA_VISIBLE_DEVICES=")
	assert.Contains(t, none, "a separate preloader for no GPU")
}

func TestStartOnAnotherGPUKindSaysWhatItWaitsFor(t *testing.T) {
	f := newFixture(t, withGPUs(fourGPUs...))
	f.ready(on(fourGPUs[0])...)
	assert.Contains(t, f.pool.Awaits(append(f.environ(), on(fourGPUs[1])...)), "waiting for a separate preloader for GPUs of the kind NVIDIA L4, which began to load at ")
	f.ready(on(fourGPUs[1])...)
	list := f.pool.List().Preloaders
	require.Len(t, list, 2)
	assert.Equal(t, []string{"CUDA_VISIBLE_DEVICES"}, list[1].Variables)
}

func TestCommonPreloaderLoadsForTheFirstGPU(t *testing.T) {
	for name, c := range map[string]struct {
		gpus []gpu.Device
		own  string // CUDA_VISIBLE_DEVICES of the launcher
		want string // of the common preloader
	}{
		"of several kinds":          {fourGPUs, "", "0"},
		"of those that may be used": {fourGPUs, "3,0", "1"},
		"of one kind: as it is":     {fourGPUs[:1], "0", "0"},
		"without GPUs: as it is":    {nil, "3", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			var environ []string
			if c.own != "" {
				environ = []string{"CUDA_VISIBLE_DEVICES=" + c.own}
			}
			p := &Pool{opts: Options{GPUs: c.gpus, Environ: environ}, own: parse(environ)}
			assert.Equal(t, c.want, p.parse(commonEnviron(p.opts))[visibleDevices])
		})
	}
}

// The launcher names GPUs by index where it can, and users by UUID as well.
func TestGPUsAreSeenInTheOrderOfTheEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"1, 0":       "GPU-l1 GPU-h0",
		"GPU-l3,2":   "GPU-l3 MIG-h2a",
		"MIG-h2b":    "MIG-h2b",
		"0,-1,1":     "GPU-h0",
		"7":          "",
		"":           "",
		"NoDevFiles": "",
	} {
		var uuids []string
		for _, g := range seenGPUs(fourGPUs, variables{visibleDevices: text}) {
			uuids = append(uuids, g.UUID)
		}
		assert.Equal(t, want, strings.Join(uuids, " "), text)
	}
	assert.Len(t, seenGPUs(fourGPUs, variables{}), len(fourGPUs))
}
