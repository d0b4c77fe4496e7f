package subgroups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

const (
	zone = "topology.kubernetes.io/zone"
	rack = "example.com/rack"
)

// said writes terms as a reader says them.
func said(terms []corev1.PodAffinityTerm) (all []string) {
	for _, t := range terms {
		all = append(all, t.TopologyKey+": "+metav1.FormatLabelSelector(t.LabelSelector))
	}
	return all
}

func TestPodsOfAGroupAreKeptTogetherAndOthersOut(t *testing.T) {
	const groupKey = "85c75a5bcf357a993c958ca839ff3faf70ec6b0b" // default/my-lws-0
	in := func(topology, label, key string) string { return topology + ": " + label + " in (" + key + ")" }
	other := func(topology, label, key string) string {
		return topology + ": " + label + "," + label + " notin (" + key + ")"
	}
	type terms struct{ affinity, antiAffinity []string }
	group0 := terms{[]string{in(zone, podmeta.LabelGroupKey, groupKey)}, []string{other(zone, podmeta.LabelGroupKey, groupKey)}}
	subgroup := func(n int) terms {
		return terms{[]string{in(rack, podmeta.LabelSubgroupKey, keys[n])}, []string{other(rack, podmeta.LabelSubgroupKey, keys[n])}}
	}
	both := func(a, b terms) terms {
		return terms{append(append([]string{}, a.affinity...), b.affinity...), append(append([]string{}, a.antiAffinity...), b.antiAffinity...)}
	}
	follows := terms{affinity: group0.affinity}
	for _, c := range []struct {
		name     string
		policy   *Policy
		topology Topology
		w        int
		want     terms
		selector bool
	}{
		{"neither", &Policy{Size: 2}, Topology{}, 1, terms{}, false},
		{"groups: entry", nil, Topology{Group: zone}, 0, group0, false},
		{"groups: worker", nil, Topology{Group: zone}, 1, terms{}, true},
		{"groups: worker in a gang", nil, Topology{Group: zone, Gang: true}, 1, follows, false},
		{"subgroups: entry", &Policy{Size: 2}, Topology{Subgroup: rack}, 0, subgroup(0), false},
		{"subgroups: worker", &Policy{Size: 2}, Topology{Subgroup: rack}, 3, subgroup(1), false},
		{"subgroups: excluded entry", &Policy{Size: 2, Type: LeaderExcluded}, Topology{Subgroup: rack}, 0, terms{}, false},
		{"both: entry has two pairs", &Policy{Size: 2}, Topology{Group: zone, Subgroup: rack}, 0, both(group0, subgroup(0)), false},
		{"both: worker has a selector and a pair", &Policy{Size: 2}, Topology{Group: zone, Subgroup: rack}, 4, subgroup(1), true},
		{"both: worker in a gang has affinity to the group", &Policy{Size: 2}, Topology{Group: zone, Subgroup: rack, Gang: true}, 4, both(follows, subgroup(1)), false},
		{"both: excluded entry", &Policy{Size: 2, Type: LeaderExcluded}, Topology{Group: zone, Subgroup: rack}, 0, group0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := group(5, cpu, c.policy)
			g.Topology = c.topology
			affinity, antiAffinity := g.Affinity(c.w)
			assert.Equal(t, c.want, terms{said(affinity), said(antiAffinity)})
			assert.Equal(t, c.selector, g.AwaitsEntry(c.w))
			var selector map[string]string
			if c.selector {
				selector = map[string]string{zone: "a"}
			}
			assert.Equal(t, selector, g.NodeSelector(c.w, "a"))
			assert.Equal(t, c.topology.Group != "", g.Labels(c.w)[podmeta.LabelGroupKey] == groupKey)
		})
	}
}

func TestAnnotationsSayThePolicy(t *testing.T) {
	topology := TopologyOf(map[string]string{
		"leaderworkerset.sigs.k8s.io/exclusive-topology": zone, "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": rack,
	}, true)
	assert.Equal(t, Topology{Group: zone, Subgroup: rack, Gang: true}, topology)
	g := group(5, cpu, &Policy{Size: 2})
	assert.Equal(t, map[string]string{"leaderworkerset.sigs.k8s.io/subgroup-size": "2"}, g.Annotations())
	g.Topology = topology
	assert.Equal(t, map[string]string{
		"leaderworkerset.sigs.k8s.io/subgroup-size":               "2",
		"leaderworkerset.sigs.k8s.io/exclusive-topology":          zone,
		"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": rack,
	}, g.Annotations())
}

func TestApplyKeepsWhatTheTemplateHas(t *testing.T) {
	g := group(5, cpu, &Policy{Size: 2})
	g.Topology = Topology{Group: zone, Subgroup: rack}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: *asking(podmeta.ResourceTPU)}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "ID", Value: "$(TPU_WORKER_ID)"}}
	own := corev1.PodAffinityTerm{TopologyKey: "own"}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own}}}
	pod.Spec.NodeSelector = map[string]string{"disk": "ssd"}

	gated := pod.DeepCopy()
	g.Apply(gated, 3, "", host)
	assert.Equal(t, map[string]string{"disk": "ssd"}, gated.Spec.NodeSelector, "the domain is not known yet")

	g.Apply(pod, 3, "a", host)
	assert.Equal(t, map[string]string{"disk": "ssd", zone: "a"}, pod.Spec.NodeSelector)
	assert.Equal(t, "a", pod.Labels["app"])
	assert.Equal(t, "1", pod.Labels[podmeta.LabelSubgroupIndex])
	assert.Equal(t, g.Annotations(), pod.Annotations)
	affinity, antiAffinity := g.Affinity(3)
	assert.Equal(t, affinity, pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	assert.Equal(t, append([]corev1.PodAffinityTerm{own}, antiAffinity...), pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	env := pod.Spec.Containers[0].Env
	require.Len(t, env, 5)
	assert.Equal(t, "ID", env[4].Name, "the template's variables can refer to those before them")

	inGang := &corev1.Pod{Spec: *asking(cpu)}
	g.Topology = Topology{Group: zone, Gang: true}
	g.Apply(inGang, 3, "a", host)
	assert.Nil(t, inGang.Spec.Affinity.PodAntiAffinity)
	assert.Len(t, inGang.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 1)
	assert.Empty(t, inGang.Spec.NodeSelector)
}

func TestTemplatesSayPortsAndTheirOwnTPUEnvironment(t *testing.T) {
	g := group(3, podmeta.ResourceTPU, &Policy{Size: 3})
	address := func(w int) string { return []string{"h0", "fd00::1", "h2"}[w] }
	set := func(w int, name, value string) {
		g.Pods[w].Containers[0].Env = []corev1.EnvVar{{Name: name, Value: value}}
	}
	set(2, "TPU_PROCESS_PORT", "9000")
	assert.Equal(t, map[string]string{
		"TPU_WORKER_ID": "2", "TPU_WORKER_HOSTNAMES": "h0,fd00::1,h2", "TPU_PROCESS_ADDRESSES": "h0:8476,[fd00::1]:8476,h2:9000",
	}, values(g.TPUEnv(2, address)), "each host has its own port")
	assert.Equal(t, "8476", values(g.TPUEnv(0, address))["TPU_PROCESS_PORT"])
	set(2, "TPU_PROCESS_PORT", "")
	assert.Contains(t, values(g.TPUEnv(0, address))["TPU_PROCESS_ADDRESSES"], "h2:8476")
	for _, name := range []string{"TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES"} {
		set(2, name, "own")
		assert.Empty(t, g.TPUEnv(2, address), "the template sets %s", name)
		assert.Equal(t, "h0,fd00::1,h2", values(g.TPUEnv(0, address))["TPU_WORKER_HOSTNAMES"], "it is a host all the same")
	}
}

func TestTPUsAreFoundInAnyContainer(t *testing.T) {
	ask := corev1.ResourceList{podmeta.ResourceTPU: resource.MustParse("1")}
	zero := corev1.ResourceList{podmeta.ResourceTPU: resource.MustParse("0")}
	first := corev1.Container{Name: "first", Resources: corev1.ResourceRequirements{Limits: zero}}
	requests := corev1.Container{Name: "requests", Resources: corev1.ResourceRequirements{Requests: ask}}
	limits := corev1.Container{Name: "limits", Resources: corev1.ResourceRequirements{Limits: ask}}
	assert.Nil(t, tpuContainer(&corev1.PodSpec{Containers: []corev1.Container{first}}))
	assert.Equal(t, "requests", tpuContainer(&corev1.PodSpec{Containers: []corev1.Container{first, requests, limits}}).Name)
	assert.Equal(t, "requests", tpuContainer(&corev1.PodSpec{InitContainers: []corev1.Container{limits}, Containers: []corev1.Container{requests}}).Name)
	assert.Equal(t, "limits", tpuContainer(&corev1.PodSpec{InitContainers: []corev1.Container{limits}, Containers: []corev1.Container{first}}).Name)
}

func TestAcceleratorsAreTPUsAndGPUs(t *testing.T) {
	assert.True(t, AsksForAccelerators(asking(podmeta.ResourceTPU)))
	assert.True(t, AsksForAccelerators(asking(podmeta.ResourceGPU)))
	assert.False(t, AsksForAccelerators(asking("example.com/fpga")))
	assert.False(t, AsksForAccelerators(asking(cpu)))
}
