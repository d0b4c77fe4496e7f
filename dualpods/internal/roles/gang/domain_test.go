package gang

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const zone = "topology.kubernetes.io/zone"

// together has the Pods of a group be in one zone.
func together(mode string) *v1alpha1.NetworkTopology {
	return &v1alpha1.NetworkTopology{GroupPolicy: &v1alpha1.NetworkTopologyPolicy{Mode: mode, HighestTierName: zone}}
}

func inZone(n Node, in string) Node {
	n.Labels = map[string]string{zone: in}
	return n
}

func TestDomainOfAGroupIsWhereMostOfItSleeps(t *testing.T) {
	asleep := func(node string, gpus ...string) placement.Asleep { return placement.Asleep{Node: node, GPUs: gpus} }
	const entry, worker = types.UID("llama-0-prefill-0-0"), types.UID("llama-0-prefill-0-1")
	for name, c := range map[string]struct {
		nodes    []Node
		sleepers map[types.UID][]placement.Asleep
		mode     string
		row      string
		domain   string
		says     string
	}{
		"two fit, and nothing sleeps: the fuller one": {nodes: []Node{inZone(node("a", 4), "a"), inZone(node("b", 2), "b")}, row: "gang fits", domain: zone + "=b"},
		"two fit, and one Pod sleeps in the other one": {nodes: []Node{inZone(node("a", 4), "a"), inZone(node("b", 2), "b")},
			sleepers: map[types.UID][]placement.Asleep{entry: {asleep("a", "0")}}, row: "gang fits", domain: zone + "=a"},
		"more of it sleeps in the fuller one": {nodes: []Node{inZone(node("a", 4), "a"), inZone(node("b", 2), "b")},
			sleepers: map[types.UID][]placement.Asleep{entry: {asleep("a", "0"), asleep("b", "0")}, worker: {asleep("b", "1")}}, row: "gang fits", domain: zone + "=b"},
		"both would wake on one GPU": {nodes: []Node{inZone(node("a", 4), "a"), inZone(node("b", 2), "b"), inZone(node("c", 3), "c")},
			sleepers: map[types.UID][]placement.Asleep{entry: {asleep("b", "0"), asleep("a", "0")}, worker: {asleep("b", "0"), asleep("a", "1")}}, row: "gang fits", domain: zone + "=a"},
		"it sleeps where there is no room": {nodes: []Node{inZone(node("a", 1), "a"), inZone(node("b", 2), "b")},
			sleepers: map[types.UID][]placement.Asleep{entry: {asleep("a", "0")}, worker: {asleep("a", "1")}}, row: "gang fits", domain: zone + "=b"},
		"it sleeps on a node that is closed": {nodes: []Node{inZone(node("a", 2), "a"), closed(inZone(node("a2", 2), "a")), inZone(node("b", 2), "b")},
			sleepers: map[types.UID][]placement.Asleep{entry: {asleep("a2", "0"), asleep("b", "0")}, worker: {asleep("a2", "1")}}, row: "gang fits", domain: zone + "=b"},
		"only two zones together have room":         {nodes: []Node{inZone(node("a", 1), "a"), inZone(node("b", 1), "b"), inZone(node("c", 0), "c")}, row: "no room", says: "have 1 free in the domain " + zone + "=a, where most are"},
		"likewise, and the mode is soft":            {nodes: []Node{inZone(node("a", 1), "a"), inZone(node("b", 1), "b")}, mode: "soft", row: "gang fits"},
		"a zone has room, and the mode is soft":     {nodes: []Node{inZone(node("a", 1), "a"), inZone(node("b", 2), "b")}, mode: "soft", row: "gang fits", domain: zone + "=b"},
		"a zone of two nodes":                       {nodes: []Node{inZone(node("a", 1), "a"), inZone(node("b", 1), "a")}, row: "gang fits", domain: zone + "=a"},
		"nodes with room have no label":             {nodes: []Node{node("a", 4)}, row: "no room", says: "no node has the label"},
		"a node without the label is in no domain":  {nodes: []Node{node("a", 4), inZone(node("b", 1), "b")}, row: "no room", says: zone + "=b"},
		"nodes have no label, and the mode is soft": {nodes: []Node{node("a", 4)}, mode: "soft", row: "gang fits"},
	} {
		t.Run(name, func(t *testing.T) {
			g := waiting("llama", 1, func(s *v1alpha1.ModelServing) { s.Spec.Template.NetworkTopology = together(c.mode) })
			s := Decide(&World{Now: now, Gangs: []*Gang{g}, Nodes: c.nodes, Sleepers: c.sleepers})[0]
			assert.Equal(t, c.row, s.Row)
			assert.Contains(t, s.Why, c.says)
			assert.Equal(t, c.domain, s.in.group.String())
			if s.Record != nil {
				assert.Equal(t, c.domain, s.Record.Domain)
			}
		})
	}
}

func closed(n Node) Node {
	n.Spec.Unschedulable = true
	return n
}

func TestRestOfAGroupStaysInItsDomain(t *testing.T) {
	nodes := func(inA int64) []Node { return []Node{inZone(node("a", inA), "a"), inZone(node("b", 2), "b")} }
	admitted, done := v1alpha1.GangAdmitted, v1alpha1.GangPlaced
	for name, c := range map[string]struct {
		pods   []matter
		state  v1alpha1.GangState
		mode   string
		key    string
		nodes  []Node
		row    string
		domain string // of the step
		writes string // domain that is recorded
	}{
		"a lost Pod":                          {pods: []matter{placed, waits, lost, lost}, state: done, nodes: nodes(1), row: "rest fits", domain: zone + "=a", writes: zone + "=a"},
		"a lost Pod, and no room there":       {pods: []matter{placed, waits, lost, lost}, state: done, nodes: nodes(0), row: "no room for the rest"},
		"likewise, and the mode is soft":      {pods: []matter{placed, waits, lost, lost}, state: done, mode: "soft", nodes: nodes(0), row: "rest fits", writes: zone + "=a"},
		"a lost Pod, and another label":       {pods: []matter{placed, waits, lost, lost}, state: done, key: "rack", nodes: nodes(0), row: "rest fits", writes: zone + "=a"},
		"extra Pods":                          {pods: []matter{placed, placed, waits, waits}, state: done, nodes: nodes(2), row: "extra Pods", domain: zone + "=a"},
		"all are placed":                      {pods: []matter{placed, placed, waits, waits}, state: admitted, nodes: nodes(2), row: "all placed", writes: zone + "=a"},
		"the controller was killed at a gate": {pods: []matter{free, waits, waits, waits}, state: admitted, nodes: nodes(2), row: "gate left", domain: zone + "=a"},
		"it is tried again after a miss":      {pods: []matter{waits, waits, waits, waits}, state: v1alpha1.GangMissed, nodes: nodes(0), row: "gang fits", domain: zone + "=b", writes: zone + "=b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving("llama")
			s.Spec.Template.NetworkTopology = together(c.mode)
			if c.key != "" {
				s.Spec.Template.NetworkTopology.GroupPolicy.HighestTierName = c.key
			}
			g := NewGang(*gangOf(s, 1, c.pods...))
			g.Record = v1alpha1.ServingGroupGang{State: c.state, Since: metav1.NewTime(now.Add(-20 * time.Second)), Domain: zone + "=a"}
			step := Decide(&World{Now: now, Gangs: []*Gang{g}, Nodes: c.nodes})[0]
			assert.Equal(t, c.row, step.Row)
			assert.Equal(t, c.domain, step.in.group.String())
			if c.writes != "" {
				assert.Equal(t, c.writes, step.Record.Domain)
			}
		})
	}
}

func TestRoomOfOtherGroupsIsReservedInTheirDomain(t *testing.T) {
	other := waiting("other", 1, func(s *v1alpha1.ModelServing) { s.Spec.Template.NetworkTopology = together("") })
	other.Record = v1alpha1.ServingGroupGang{State: v1alpha1.GangAdmitted, Since: metav1.NewTime(now), Domain: zone + "=b"}
	w := &World{Now: now, Gangs: []*Gang{waiting("a", 2), other}, Nodes: []Node{inZone(node("a", 2), "a"), inZone(node("b", 4), "b")}}
	assert.Equal(t, map[string]string{"a-0": "gang fits", "other-0": "gate left"}, decisions(w))
	w.Nodes[1].Free = 3
	assert.Equal(t, "no room", decisions(w)["a-0"])
}

func TestPodsGetTheDomainInTheWriteThatRemovesTheirGates(t *testing.T) {
	llama := serving("llama")
	llama.Spec.Template.NetworkTopology = together("")
	s := newSite(t, 2, llama)
	s.api.nodes["a"].Labels = map[string]string{zone: "a"}
	s.api.nodes["b"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{zone: "b"}}, Status: corev1.NodeStatus{Allocatable: gpuList(4)}}
	var asked []string
	s.c.opts.Sleepers = func(_ context.Context, pods []*corev1.Pod) (map[types.UID][]placement.Asleep, error) {
		for _, pod := range pods {
			asked = append(asked, pod.Name)
		}
		return map[types.UID][]placement.Asleep{"llama-0-prefill-0-1": {{Node: "b", GPUs: []string{"0"}}}}, nil
	}
	s.pass()
	assert.Equal(t, []string{"llama-0-prefill-0-0", "llama-0-prefill-0-1"}, asked, "counted Pods alone")
	assert.Equal(t, zone+"=b", s.record("llama").Domain)
	for _, name := range asked {
		assert.Empty(t, s.api.pods[name].Spec.SchedulingGates)
		assert.Equal(t, map[string]string{zone: "b"}, s.api.pods[name].Spec.NodeSelector)
	}
}

func TestSchedulerIsToldOfTheDomain(t *testing.T) {
	must, may := corev1.PodSpec{NodeSelector: map[string]string{"gpu": "large"}}, corev1.PodSpec{}
	domain{zone, "a"}.apply(&must, true)
	assert.Equal(t, map[string]string{"gpu": "large", zone: "a"}, must.NodeSelector)
	domain{zone, "a"}.apply(&may, false)
	assert.Nil(t, may.NodeSelector)
	terms := may.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	assert.Equal(t, []corev1.NodeSelectorRequirement{{Key: zone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}, terms[0].Preference.MatchExpressions)
	none := corev1.PodSpec{}
	domain{}.apply(&none, true)
	assert.Equal(t, corev1.PodSpec{}, none)
}
