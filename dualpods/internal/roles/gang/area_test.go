package gang

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/placement"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

const rack = "example.com/rack"

// apart has the Pods of each replica of a role be in one rack, and those of a group in one zone if that is
// said.
func apart(mode string, inZone bool) *v1alpha1.NetworkTopology {
	topology := &v1alpha1.NetworkTopology{RolePolicy: &v1alpha1.NetworkTopologyPolicy{Mode: mode, HighestTierName: rack}}
	if inZone {
		topology.GroupPolicy = together("").GroupPolicy
	}
	return topology
}

// inRack is a node of a zone and a rack with as many free GPUs. The name is that of the rack.
func inRack(zoned, name string, free int64) Node {
	n := inZone(node(name, free), zoned)
	n.Labels[rack] = name
	return n
}

// bothCounted is a group of two replicas with an entry and a worker each, which are all counted.
func bothCounted(topology *v1alpha1.NetworkTopology, pods ...matter) *Gang {
	s := serving("llama")
	s.Spec.Template.GangPolicy, s.Spec.Template.NetworkTopology = &v1alpha1.GangPolicy{}, topology
	return NewGang(*gangOf(s, 1, pods...))
}

func TestReplicasGetDomainsOfTheirOwn(t *testing.T) {
	asleep := func(node string, gpus ...string) placement.Asleep { return placement.Asleep{Node: node, GPUs: gpus} }
	const second = types.UID("llama-0-prefill-1-0")
	for name, c := range map[string]struct {
		nodes    []Node
		sleepers map[types.UID][]placement.Asleep
		mode     string
		inZone   bool
		row      string
		domain   string
		in       map[string]string // racks by role-id
		says     string
	}{
		"one rack has room for both":       {nodes: []Node{inRack("z", "a", 4)}, row: "gang fits", in: map[string]string{"prefill-0": "a", "prefill-1": "a"}},
		"two racks have room for one each": {nodes: []Node{inRack("z", "a", 2), inRack("z", "b", 3)}, row: "gang fits", in: map[string]string{"prefill-0": "a", "prefill-1": "b"}},
		"there is room, but in parts": {nodes: []Node{inRack("z", "a", 3), inRack("z", "b", 1)}, row: "no room",
			says: "4 Pods need 4 GPUs together, and the nodes that they may use have 4 free, but not so that each replica of a role is in one domain of the label " + rack},
		"likewise, and the mode is soft":        {nodes: []Node{inRack("z", "a", 3), inRack("z", "b", 1)}, mode: "soft", row: "gang fits", in: map[string]string{"prefill-0": "a"}},
		"the second sleeps in the fuller rack":  {nodes: []Node{inRack("z", "a", 4), inRack("z", "b", 2)}, sleepers: map[types.UID][]placement.Asleep{second: {asleep("b", "0")}}, row: "gang fits", in: map[string]string{"prefill-0": "a", "prefill-1": "b"}},
		"the second sleeps in the emptier rack": {nodes: []Node{inRack("z", "a", 4), inRack("z", "b", 2)}, sleepers: map[types.UID][]placement.Asleep{second: {asleep("a", "0")}}, row: "gang fits", in: map[string]string{"prefill-0": "a", "prefill-1": "a"}},
		"the racks with room are in two zones":  {nodes: []Node{inRack("y", "a", 2), inRack("z", "b", 2), inRack("z", "c", 1)}, inZone: true, row: "no room", says: "have 3 free in the domain " + zone + "=z, where most are"},
		"one zone has room in parts": {nodes: []Node{inRack("y", "a", 3), inRack("y", "b", 1), inRack("z", "c", 2), inRack("z", "d", 3)}, inZone: true,
			row: "gang fits", domain: zone + "=z", in: map[string]string{"prefill-0": "c", "prefill-1": "d"}},
		"no node has the label": {nodes: []Node{node("a", 4)}, row: "no room", says: "not so that each replica"},
	} {
		t.Run(name, func(t *testing.T) {
			g := bothCounted(apart(c.mode, c.inZone), waits, waits, waits, waits)
			s := Decide(&World{Now: now, Gangs: []*Gang{g}, Nodes: c.nodes, Sleepers: c.sleepers})[0]
			assert.Equal(t, c.row, s.Row)
			assert.Contains(t, s.Why, c.says)
			if c.row == "gang fits" {
				assert.Equal(t, c.domain, s.Record.Domain)
				assert.Equal(t, racks(c.in), s.Record.RoleDomains)
			}
		})
	}
}

// racks are the recorded domains of replicas in racks.
func racks(names map[string]string) map[string]string {
	all := map[string]string{}
	for id, name := range names {
		all[id] = rack + "=" + name
	}
	return all
}

// Where replicas sleep there may be no room for all of them.
func TestReplicasGetDomainsWithoutRegardToSleepersIfAllFitOnlySo(t *testing.T) {
	g := bothCounted(apart("", false), waits, waits, waits, waits)
	g.Replicas[1].Role = g.Replicas[0].Role.DeepCopy()
	for _, m := range g.Replicas[1].Pods { // it needs more than the other
		m.Pod.Spec.Containers[0].Resources.Limits = gpuList(2)
	}
	nodes := []Node{inRack("z", "a", 2), inRack("z", "b", 5)}
	sleepers := map[types.UID][]placement.Asleep{"llama-0-prefill-1-0": {{Node: "b", GPUs: []string{"0"}}}}
	s := Decide(&World{Now: now, Gangs: []*Gang{g}, Nodes: nodes, Sleepers: sleepers})[0]
	require.Equal(t, "gang fits", s.Row, s.Why)
	assert.Equal(t, racks(map[string]string{"prefill-0": "a", "prefill-1": "b"}), s.Record.RoleDomains)
}

func TestReplicasKeepTheirDomains(t *testing.T) {
	nodes := func(inA, inB int64) []Node { return []Node{inRack("z", "a", inA), inRack("z", "b", inB)} }
	admitted, done := v1alpha1.GangAdmitted, v1alpha1.GangPlaced
	both := map[string]string{"prefill-0": "a", "prefill-1": "b"}
	for name, c := range map[string]struct {
		pods    []matter
		mode    string
		counted bool // both replicas; else the second is an extra one
		state   v1alpha1.GangState
		had     map[string]string
		nodes   []Node
		row     string
		ungated []string
		in      map[string]string // of the Pods that are let go
		writes  map[string]string
		says    string
	}{
		"a lost worker":                                      {pods: []matter{placed, waits, placed, placed}, counted: true, state: done, had: both, nodes: nodes(1, 4), row: "rest fits", ungated: []string{"0-1"}, in: both, writes: both},
		"a lost worker, and no room there":                   {pods: []matter{placed, waits, placed, placed}, counted: true, state: done, had: both, nodes: nodes(0, 4), row: "no room for the rest"},
		"a replica is lost":                                  {pods: []matter{waits, waits, placed, placed}, counted: true, state: done, had: both, nodes: nodes(0, 2), row: "rest fits", ungated: []string{"0-0", "0-1"}, in: map[string]string{"prefill-0": "b", "prefill-1": "b"}, writes: map[string]string{"prefill-0": "b", "prefill-1": "b"}},
		"the controller was killed at a gate":                {pods: []matter{free, waits, waits, waits}, counted: true, state: admitted, had: both, nodes: nodes(2, 2), row: "gate left", ungated: []string{"0-1", "1-0", "1-1"}, in: both},
		"all are placed":                                     {pods: []matter{placed, placed, placed, placed}, counted: true, state: admitted, had: both, nodes: nodes(0, 0), row: "all placed", writes: both},
		"an extra replica":                                   {pods: []matter{placed, placed, waits, waits}, state: done, had: map[string]string{"prefill-0": "a"}, nodes: nodes(0, 2), row: "extra Pods", ungated: []string{"1-0", "1-1"}, in: both, writes: both},
		"an extra replica, and room in parts":                {pods: []matter{placed, placed, waits, waits}, state: done, had: map[string]string{"prefill-0": "a"}, nodes: nodes(1, 1), row: "extra Pods wait", says: "not so that each replica"},
		"likewise, and the mode is soft":                     {pods: []matter{placed, placed, waits, waits}, mode: "soft", state: done, had: map[string]string{"prefill-0": "a"}, nodes: nodes(1, 1), row: "extra Pods", ungated: []string{"1-0", "1-1"}, writes: map[string]string{"prefill-0": "a"}},
		"an extra replica has no room, and the mode is soft": {pods: []matter{placed, placed, waits, waits}, mode: "soft", state: done, had: map[string]string{"prefill-0": "a"}, nodes: nodes(1, 0), row: "extra Pods", ungated: []string{"1-0", "1-1"}},
		"an extra replica, of which one is yet to come":      {pods: []matter{placed, placed, waits, lost}, state: done, had: map[string]string{"prefill-0": "a"}, nodes: nodes(1, 2), row: "extra Pods wait"},
		"an extra replica, of which one is on":               {pods: []matter{placed, placed, free, waits}, state: done, had: both, nodes: nodes(0, 2), row: "extra Pods", ungated: []string{"1-1"}, in: both, writes: both},
		"it is tried again after a miss":                     {pods: []matter{waits, waits, waits, waits}, counted: true, state: v1alpha1.GangMissed, had: both, nodes: nodes(4, 0), row: "gang fits", ungated: []string{"0-0", "0-1", "1-0", "1-1"}, in: map[string]string{"prefill-0": "a", "prefill-1": "a"}, writes: map[string]string{"prefill-0": "a", "prefill-1": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving("llama")
			if c.counted {
				s.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{}
			}
			s.Spec.Template.NetworkTopology = apart(c.mode, false)
			g := NewGang(*gangOf(s, 1, c.pods...))
			g.Record = v1alpha1.ServingGroupGang{State: c.state, Since: metav1.NewTime(now.Add(-20 * time.Second)), RoleDomains: racks(c.had)}
			step := Decide(&World{Now: now, Gangs: []*Gang{g}, Nodes: c.nodes})[0]
			require.Equal(t, c.row, step.Row, step.Why)
			assert.Contains(t, step.Why, c.says)
			var ungated []string
			for _, m := range step.Ungate {
				ungated = append(ungated, m.Name[len("llama-0-prefill-"):])
				if name := c.in[m.of.ID]; name != "" {
					assert.Equal(t, rack+"="+name, step.in.replicas[m.of].String(), m.Name)
				} else {
					assert.Empty(t, step.in.replicas[m.of], m.Name)
				}
			}
			assert.Equal(t, c.ungated, ungated)
			if c.writes != nil {
				require.NotNil(t, step.Record)
				assert.Equal(t, racks(c.writes), step.Record.RoleDomains)
			}
		})
	}
}
