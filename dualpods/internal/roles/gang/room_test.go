package gang

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// wanting returns Pods that need so many GPUs each.
func wanting(gpus ...int64) (all []*Member) {
	for n, g := range gpus {
		name := fmt.Sprintf("p-%d", n)
		all = append(all, &Member{Name: name, Pod: gatedPod(serving("llama"), name, g)})
	}
	return all
}

func TestPodsFitTogetherOrNot(t *testing.T) {
	for name, c := range map[string]struct {
		free []int64
		pods []int64
		fit  bool
	}{
		"nothing":                           {nil, nil, true},
		"Pods without GPUs":                 {nil, []int64{0, 0}, true},
		"as many as there are":              {[]int64{2, 1}, []int64{1, 1, 1}, true},
		"one more":                          {[]int64{2, 1}, []int64{1, 1, 1, 1}, false},
		"the large one comes first":         {[]int64{2, 3}, []int64{1, 1, 3}, true},
		"enough, but in parts":              {[]int64{2, 2}, []int64{3}, false},
		"a node has fewer than were given":  {[]int64{-1, 1}, []int64{1}, true},
		"the smallest gap is filled first":  {[]int64{4, 2}, []int64{2, 4}, true},
		"the gaps are of the same size":     {[]int64{3, 3}, []int64{2, 2, 1, 1}, true},
		"a Pod that is larger than a node ": {[]int64{8, 8}, []int64{9}, false},
	} {
		var nodes []Node
		for n, free := range c.free {
			nodes = append(nodes, node(fmt.Sprint(n), free))
		}
		assert.Equal(t, c.fit, newRoom(nodes).take(wanting(c.pods...), area{}), name)
	}
}

func TestPodsGetNodesThatTheyMayUse(t *testing.T) {
	nodes := []Node{node("a", 2), node("b", 2)}
	nodes[0].Labels = map[string]string{"gpu": "large"}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		node func(*corev1.Node)
		fit  bool
	}{
		"a node selector":       {pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "large"} }, fit: true},
		"another node selector": {pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"gpu": "small"} }},
		"a node affinity":       {pod: func(p *corev1.Pod) { p.Spec.Affinity = affinityTo("large") }, fit: true},
		"another affinity":      {pod: func(p *corev1.Pod) { p.Spec.Affinity = affinityTo("small") }},
		"a taint":               {node: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }},
		"a taint that is no more": {node: func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, fit: true},
		"a node that is cordoned":  {node: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		"no demand, and no taint ": {fit: true},
	} {
		pods, on := wanting(2), []Node{{nodes[0].DeepCopy(), 2}, {nodes[1].DeepCopy(), 2}}
		if c.pod != nil {
			c.pod(pods[0].Pod)
		}
		for _, n := range on {
			if c.node != nil {
				c.node(n.Node)
			}
		}
		assert.Equal(t, c.fit, newRoom(on).take(pods, area{}), name)
	}
}

func affinityTo(gpu string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpIn, Values: []string{gpu}}}},
	}}}}
}

func TestPodWithFewNodesComesBeforeALargerOne(t *testing.T) {
	nodes := []Node{node("a", 2), node("b", 2)}
	nodes[0].Labels = map[string]string{"gpu": "large"}
	pods := wanting(2, 1)
	pods[1].Pod.Spec.NodeSelector = map[string]string{"gpu": "large"}
	assert.True(t, newRoom(nodes).take(pods, area{}), "the small Pod may use the first node alone")
}

// BenchmarkDecide decides about 100 groups of 8 Pods on 1,000 nodes. All fit.
func BenchmarkDecide(b *testing.B) {
	w := &World{Now: now}
	for n := range 1000 {
		w.Nodes = append(w.Nodes, node(fmt.Sprintf("node-%04d", n), int64(n%2)))
	}
	for n := range 100 {
		s := serving(fmt.Sprintf("s-%d", n))
		s.Spec.Template.Roles[0].Replicas, s.Spec.Template.GangPolicy = new(int32(4)), &v1alpha1.GangPolicy{}
		g := Gang{Serving: s, Name: s.Name + "-0"}
		for replica := range 4 {
			r := &Replica{Role: &s.Spec.Template.Roles[0]}
			for pod := range 2 {
				name := fmt.Sprintf("%s-0-prefill-%d-%d", s.Name, replica, pod)
				r.Pods = append(r.Pods, &Member{Name: name, Pod: gatedPod(s, name, 1)})
			}
			g.Replicas = append(g.Replicas, r)
		}
		w.Gangs = append(w.Gangs, NewGang(g))
	}
	admitted := 0
	for b.Loop() {
		admitted = 0
		for _, s := range Decide(w) {
			admitted += len(s.Ungate)
		}
	}
	require.Equal(b, 496, admitted, "62 groups have room on 500 GPUs")
}
