package supervisor

import (
	"maps"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// visibleDevices is the environment variable that tells an engine its GPUs.
const visibleDevices = "CUDA_VISIBLE_DEVICES"

// withDevices returns the spec as clients of the llm-d launcher see it: env_vars
// includes the variable that the launcher sets from gpu_uuids.
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
