package launcherpool

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// openPaths are the paths of the control port that a launcher serves without a
// client certificate.
var openPaths = []string{"/readyz", "/health"}

// secureProbes switches probes of the launcher's control port to TLS: a template that names no
// scheme means plain HTTP, which the port does not speak. It refuses paths that ask
// for a client certificate, because the kubelet has none.
func (w *templateBuilder) secureProbes() {
	for i := range w.pod.Containers {
		w.secureProbesOf(&w.pod.Containers[i], "containers")
	}
	for i := range w.pod.InitContainers {
		w.secureProbesOf(&w.pod.InitContainers[i], "initContainers")
	}
}

func (w *templateBuilder) secureProbesOf(c *corev1.Container, list string) {
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"readinessProbe", c.ReadinessProbe}, {"livenessProbe", c.LivenessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe == nil {
			continue
		}
		field := fmt.Sprintf("%s.spec.%s[%s].%s", fieldTemplate, list, c.Name, p.name)
		if grpc := p.probe.GRPC; grpc != nil && grpc.Port == w.image.Port {
			w.problem(field+".grpc", fmt.Sprintf("uses gRPC on port %d, where the launcher serves HTTPS only: use httpGet with path %s", grpc.Port, openPaths[0]))
		}
		get := p.probe.HTTPGet
		if get == nil || get.Host != "" || !w.isControlPort(c, get.Port) {
			continue
		}
		if !slices.Contains(openPaths, get.Path) {
			w.problem(field+".httpGet.path", fmt.Sprintf("is %q, for which port %d of a launcher asks for a client certificate: use %s (ready for work) or %s (alive)",
				get.Path, w.image.Port, openPaths[0], openPaths[1]))
		}
		get.Scheme = corev1.URISchemeHTTPS
	}
}

// isControlPort reports whether a port, or a container's name for it, is the launcher's
// control port.
func (w *templateBuilder) isControlPort(c *corev1.Container, port intstr.IntOrString) bool {
	if port.Type == intstr.Int {
		return port.IntVal == w.image.Port
	}
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == port.StrVal && p.ContainerPort == w.image.Port
	})
}
