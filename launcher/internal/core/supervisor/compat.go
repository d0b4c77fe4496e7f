package supervisor

import (
	"maps"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// visibleDevices is the variable by which an engine is told its GPUs.
const visibleDevices = "CUDA_VISIBLE_DEVICES"

// withDevices gives the spec as clients of the llm-d launcher are shown it: with
// the variable that the launcher sets from gpu_uuids among env_vars.
func withDevices(spec launcherapi.InstanceSpec, engineEnv []string) launcherapi.InstanceSpec {
	if len(spec.GPUUUIDs) == 0 {
		return spec
	}
	for _, entry := range engineEnv {
		if value, ok := strings.CutPrefix(entry, visibleDevices+"="); ok {
			shown := map[string]launcherapi.EnvValue{}
			maps.Copy(shown, spec.EnvVars)
			shown[visibleDevices] = launcherapi.EnvValue{Value: value}
			spec.EnvVars = shown
		}
	}
	return spec
}
