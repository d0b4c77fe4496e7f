package daemon

import (
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// limitedTo adds to the environment of engines which GPUs they may see if the launcher was
// told to use some of them: an instance that names no GPU would see all of the machine's.
func limitedTo(environ []string, gpus gpu.Provider) []string {
	some := gpus.Devices()
	if len(some) == len(gpus.AllDevices()) {
		return environ
	}
	visible := make([]engine.GPU, len(some))
	for n, d := range some {
		visible[n] = engine.GPU{UUID: d.UUID, Index: d.Index, MIG: d.MIG}
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(v, "CUDA_DEVICE_ORDER=")
	})
	return append(environ, engine.VisibleDevices(visible)...)
}
