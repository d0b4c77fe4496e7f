package allocations

import (
	"fmt"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// GPUs are the UUIDs of those that the kubelet has given to the container that runs the
// program of the requester with that name, sorted, each once; empty where the Pod is not among
// pods or has none there. An error says that they cannot be told. The kubelet lists sidecars
// beside the other containers of a Pod (pkg/kubelet/apis/podresources/server_v1.go, since 1.29).
//
// NVIDIA's device plugin takes the UUID that NVML has for a GPU or a MIG device
// as the id of its device, and UUID::n for the n-th replica of one that is shared
// by time slicing or MPS (github.com/NVIDIA/k8s-device-plugin,
// internal/rm/devices.go: BuildDevice, AnnotatedID). UUIDs of NVML begin with
// GPU- or MIG- (nvmlDeviceGetUUID). Other plugins have other ids: those of GKE,
// for instance, are names such as nvidia0.
func GPUs(pods []podresourcesapi.Pod, namespace, name, container string) (uuids []string, err error) {
	seen := false
	for _, p := range pods {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		if seen {
			return nil, fmt.Errorf("the kubelet reports two Pods of that name")
		}
		seen = true
		for _, c := range p.Containers {
			if c.Name != container {
				continue
			}
			for _, id := range c.Devices[string(podmeta.ResourceGPU)] {
				uuid, _, _ := strings.Cut(id, "::")
				if !strings.HasPrefix(uuid, "GPU-") && !strings.HasPrefix(uuid, "MIG-") {
					return nil, fmt.Errorf("the kubelet gave it device %q, which is not the UUID of a GPU: if the device plugin has no UUIDs, set spec.allocationCheck.mode of the LauncherConfig to None", id)
				}
				uuids = append(uuids, uuid)
			}
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids), nil
}
