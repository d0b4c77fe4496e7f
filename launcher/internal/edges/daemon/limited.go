package daemon

import (
	"slices"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
)

// limitedTo adds to the environment of engines which GPUs they may see if the launcher was
// told to use some of them: an instance that names no GPU would see all of the machine's.
func limitedTo(environ []string, gpus gpu.Provider) []string {
	some := gpus.Devices()
	if len(some) == len(gpus.AllDevices()) {
		return environ
	}
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(v, "CUDA_DEVICE_ORDER=")
	})
	return append(environ, preload.VisibleTo(some)...)
}
