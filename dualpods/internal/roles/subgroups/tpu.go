package subgroups

import (
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

// defaultTPUPort is where a process listens that has no TPU_PROCESS_PORT, as LeaderWorkerSet
// has it.
const defaultTPUPort = "8476"

// TPUEnv returns the TPU environment of Pod w, for its container that asks for google.com/tpu. The
// hosts are the members of its subgroup that ask for it, in the order of their indices. There is
// no environment if the Pod is in no subgroup or asks for no TPUs, or if its template sets one of
// the variables about hosts itself. address returns the host name of a Pod.
func (g *Group) TPUEnv(w int, address func(w int) string) []corev1.EnvVar {
	index, ok := g.Index(w)
	container := tpuContainer(g.Pods[w])
	if !ok || container == nil || slices.ContainsFunc(container.Env, isAboutTPUHosts) {
		return nil
	}
	var hosts, processes []string
	id := 0
	for other := range g.Pods {
		c := tpuContainer(g.Pods[other])
		if i, ok := g.Index(other); !ok || i != index || c == nil {
			continue
		}
		if other == w {
			id = len(hosts)
		}
		host := address(other)
		hosts, processes = append(hosts, host), append(processes, net.JoinHostPort(host, tpuPort(c)))
	}
	env := []corev1.EnvVar{
		{Name: podmeta.EnvTPUWorkerID, Value: strconv.Itoa(id)},
		{Name: podmeta.EnvTPUWorkerHostnames, Value: strings.Join(hosts, ",")},
		{Name: podmeta.EnvTPUProcessAddresses, Value: strings.Join(processes, ",")},
	}
	if !slices.ContainsFunc(container.Env, isTPUPort) {
		env = append(env, corev1.EnvVar{Name: podmeta.EnvTPUProcessPort, Value: tpuPort(container)})
	}
	return env
}

func isAboutTPUHosts(e corev1.EnvVar) bool {
	return slices.Contains([]string{podmeta.EnvTPUWorkerID, podmeta.EnvTPUWorkerHostnames, podmeta.EnvTPUProcessAddresses}, e.Name)
}

func isTPUPort(e corev1.EnvVar) bool { return e.Name == podmeta.EnvTPUProcessPort }

func tpuPort(c *corev1.Container) string {
	if i := slices.IndexFunc(c.Env, isTPUPort); i >= 0 && c.Env[i].Value != "" {
		return c.Env[i].Value
	}
	return defaultTPUPort
}

// tpuContainer returns the container of a Pod that asks for google.com/tpu, under limits or
// requests; nil: none does. If several do, it is the first one, as with LeaderWorkerSet, and init
// containers come last.
func tpuContainer(spec *corev1.PodSpec) *corev1.Container {
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			limit, request := containers[i].Resources.Limits[podmeta.ResourceTPU], containers[i].Resources.Requests[podmeta.ResourceTPU]
			if !limit.IsZero() || !request.IsZero() {
				return &containers[i]
			}
		}
	}
	return nil
}
