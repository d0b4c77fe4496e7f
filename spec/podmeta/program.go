package podmeta

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Program is the container of a requester that runs the requester program. That container
// has the GPUs, the readiness probe and the SPI. It is one of two:
//
//   - the container ServingContainer, or
//   - a sidecar: the init container SidecarContainer with restartPolicy Always. Then the
//     container ServingContainer has no GPU and only waits. The server patch makes the
//     engine of it.
type Program struct {
	Name      string                  // of the container
	Field     string                  // where the container stands in the Pod, such as spec.containers[inference-server]
	Container *corev1.Container       // nil: the Pod does not have it
	Status    *corev1.ContainerStatus // nil: the kubelet has reported nothing of it

	hasAddress bool // the Pod
}

// ProgramOf finds the requester program of a Pod.
func ProgramOf(pod *corev1.Pod) Program {
	p := Program{Name: ServingContainer, Container: Container(&pod.Spec, ServingContainer), hasAddress: pod.Status.PodIP != ""}
	statuses := pod.Status.ContainerStatuses
	if c := sidecar(&pod.Spec); c != nil && restartsAlways(c) {
		p.Name, p.Container, p.Field = SidecarContainer, c, fieldOfSidecar
		statuses = pod.Status.InitContainerStatuses
	} else {
		p.Field = fieldOfServing
	}
	for i := range statuses {
		if statuses[i].Name == p.Name {
			p.Status = &statuses[i]
		}
	}
	return p
}

// Runs reports whether the requester program runs, and the Pod has an address.
func (p Program) Runs() bool { return p.Status != nil && p.Status.State.Running != nil && p.hasAddress }

// Started is when the requester program started; zero: it does not run.
func (p Program) Started() time.Time {
	if p.Status == nil || p.Status.State.Running == nil {
		return time.Time{}
	}
	return p.Status.State.Running.StartedAt.Time
}

// Ended reports whether the requester program has ended, and has not been started again yet.
func (p Program) Ended() bool { return p.Status != nil && ended(p.Status) }

const (
	fieldOfServing = "spec.containers[" + ServingContainer + "]"
	fieldOfSidecar = "spec.initContainers[" + SidecarContainer + "]"
	fieldOfGPUs    = ".resources.limits[" + string(ResourceGPU) + "]"
)

func sidecar(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == SidecarContainer {
			return &spec.InitContainers[i]
		}
	}
	return nil
}

func restartsAlways(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func hasGPUs(c *corev1.Container) bool {
	q := c.Resources.Limits[ResourceGPU]
	return !q.IsZero()
}

// gpus reads how many GPUs the container of the requester program holds, and finds what is
// wrong with the containers of the Pod.
func (r *reading) gpus(p Program) int {
	serving := Container(&r.pod.Spec, ServingContainer)
	switch {
	case p.Container == nil:
		r.add("spec.containers", fmt.Sprintf("none is named %[1]s: the container of that name runs the requester program and holds the GPUs, or it waits while an init container %[2]s with restartPolicy: Always does so", ServingContainer, SidecarContainer))
		return 0
	case serving == nil:
		r.add("spec.containers", fmt.Sprintf("none is named %s: the init container %s runs the requester program; add a container of that name, without a GPU, that only waits", ServingContainer, SidecarContainer))
	case p.Name == SidecarContainer && hasGPUs(serving) && hasGPUs(p.Container):
		r.add(fieldOfServing+fieldOfGPUs, fmt.Sprintf("is set although the init container %s, which runs the requester program, has GPUs too: remove it here", SidecarContainer))
	case p.Name == SidecarContainer && hasGPUs(serving):
		r.add(fieldOfServing+fieldOfGPUs, fmt.Sprintf("should be at the init container %s, which runs the requester program: move it there", SidecarContainer))
		return 0
	case p.Name == ServingContainer && !hasGPUs(serving) && r.namesSidecar():
		r.add(fieldOfSidecar+".restartPolicy", fmt.Sprintf("is not Always: with Always, the init container runs the requester program while the container %s waits; without it, it ends before that container starts", ServingContainer))
		return 0
	}
	n, wrong := GPUs(p.Container.Resources.Limits)
	if other := r.otherWithGPUs(p); wrong != "" && other != "" && !hasGPUs(p.Container) {
		wrong = fmt.Sprintf("is not there, and the container %s has GPUs: move them to the container that runs the requester program, which is %s, or an init container %s with restartPolicy: Always", other, p.Name, SidecarContainer)
	}
	if wrong != "" {
		r.add(p.Field+fieldOfGPUs, wrong)
	}
	return n
}

func (r *reading) namesSidecar() bool { return sidecar(&r.pod.Spec) != nil }

// otherWithGPUs returns the name of a container that has GPUs and does not run the requester
// program; empty: there is none.
func (r *reading) otherWithGPUs(p Program) string {
	for _, c := range slices.Concat(r.pod.Spec.InitContainers, r.pod.Spec.Containers) {
		if c.Name != p.Name && hasGPUs(&c) {
			return c.Name
		}
	}
	return ""
}
