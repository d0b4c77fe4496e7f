package subgroups

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Apply gives Pod w everything that its subgroup and topology ask for. domain is that of the
// entry, for NodeSelector; empty: it is not known yet, and the Pod gets no selector. address
// returns the host name of a Pod.
func (g *Group) Apply(pod *corev1.Pod, w int, domain string, address func(w int) string) {
	add(&pod.Labels, g.Labels(w))
	add(&pod.Annotations, g.Annotations())
	if domain != "" {
		add(&pod.Spec.NodeSelector, g.NodeSelector(w, domain))
	}
	g.addAffinity(&pod.Spec, w)
	if c := tpuContainer(&pod.Spec); c != nil {
		c.Env = append(g.TPUEnv(w, address), c.Env...) // the template's variables can refer to those before them
	}
}

func add(to *map[string]string, more map[string]string) {
	if len(more) == 0 {
		return
	}
	if *to == nil {
		*to = map[string]string{}
	}
	maps.Copy(*to, more)
}

// addAffinity adds the terms of Pod w to those that its template has.
func (g *Group) addAffinity(spec *corev1.PodSpec, w int) {
	affinity, antiAffinity := g.Affinity(w)
	if len(affinity) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	a := spec.Affinity
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, affinity...)
	if len(antiAffinity) == 0 {
		return
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, antiAffinity...)
}
