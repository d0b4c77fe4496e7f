package supervisor

import (
	"strconv"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/gpu"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// gpuMemory returns how many bytes of each GPU a request says that its engine takes; 0: it does not say.
func gpuMemory(spec launcherapi.InstanceSpec) (uint64, error) {
	text, says := spec.Annotations[launcherapi.AnnotationGPUMemory]
	if !says {
		return 0, nil
	}
	bytes, err := strconv.ParseUint(text, 10, 63)
	if err != nil || bytes == 0 {
		return 0, launcher.Invalidf("body.annotations."+launcherapi.AnnotationGPUMemory, "%s must be a decimal number of bytes above 0, not %q", launcherapi.AnnotationGPUMemory, text)
	}
	return bytes, nil
}

// bytesOf returns how many bytes of each GPU the engine of a plan takes, by UUID.
func bytesOf(plan engine.Plan, devices []gpu.Device) map[string]uint64 {
	all := map[string]uint64{}
	for _, d := range devices {
		all[d.UUID] = plan.DeviceMemory.Of(d.MemoryTotalBytes)
	}
	return all
}
