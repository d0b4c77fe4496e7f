package launcherpool

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// openPaths are what a launcher answers on its control port without a certificate.
var openPaths = []string{"/readyz", "/health"}

// probe has the probes of a template that go to the launcher's control port speak
// TLS, as that port does: a template that says nothing about it means plain HTTP,
// by which no launcher ever gets ready. The kubelet shows no certificate, so paths
// that ask for one are refused.
func (w *making) probe() {
	for i := range w.pod.Containers {
		w.probesOf(&w.pod.Containers[i], "containers")
	}
	for i := range w.pod.InitContainers {
		w.probesOf(&w.pod.InitContainers[i], "initContainers")
	}
}

func (w *making) probesOf(c *corev1.Container, list string) {
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"readinessProbe", c.ReadinessProbe}, {"livenessProbe", c.LivenessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe == nil {
			continue
		}
		field := fmt.Sprintf("%s.spec.%s[%s].%s", fieldTemplate, list, c.Name, p.name)
		if grpc := p.probe.GRPC; grpc != nil && grpc.Port == w.image.Port {
			w.problem(field+".grpc", fmt.Sprintf("asks port %d, where the launcher speaks no gRPC: use httpGet with path %s", grpc.Port, openPaths[0]))
		}
		get := p.probe.HTTPGet
		if get == nil || get.Host != "" || !w.isControl(c, get.Port) {
			continue
		}
		if !slices.Contains(openPaths, get.Path) {
			w.problem(field+".httpGet.path", fmt.Sprintf("is %q, which port %d of a launcher answers only to clients with a certificate: use %s (ready for work) or %s (alive)",
				get.Path, w.image.Port, openPaths[0], openPaths[1]))
		}
		get.Scheme = corev1.URISchemeHTTPS
	}
}

// isControl says that a port, or the name that a container has for it, is the
// launcher's control port.
func (w *making) isControl(c *corev1.Container, port intstr.IntOrString) bool {
	if port.Type == intstr.Int {
		return port.IntVal == w.image.Port
	}
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == port.StrVal && p.ContainerPort == w.image.Port
	})
}
