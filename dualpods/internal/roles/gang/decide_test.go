package gang

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestEachRowOfGangs(t *testing.T) {
	const entry, worker, extra, extraWorker = "llama-0-prefill-0-0", "llama-0-prefill-0-1", "llama-0-prefill-1-0", "llama-0-prefill-1-1"
	all := []string{entry, worker, extra, extraWorker}
	record := func(state v1alpha1.GangState, ago time.Duration, misses int32) v1alpha1.ServingGroupGang {
		return v1alpha1.ServingGroupGang{State: state, Since: metav1.NewTime(now.Add(-ago)), Misses: misses}
	}
	none := v1alpha1.ServingGroupGang{}
	admitted, overdue := record(v1alpha1.GangAdmitted, 20*time.Second, 2), record(v1alpha1.GangAdmitted, time.Minute, 2)
	for name, c := range map[string]struct {
		pods   []matter
		record v1alpha1.ServingGroupGang
		so     func(*Gang, *World)
		row    string
		ungate []string
		delete []string
		writes v1alpha1.ServingGroupGang
		again  time.Duration
		says   string
	}{
		"the ModelServing is being deleted": {pods: []matter{waits, waits, waits, waits}, row: "ModelServing leaves", so: func(g *Gang, _ *World) {
			g.Serving.DeletionTimestamp = &metav1.Time{Time: now}
		}},
		"its policy was removed": {pods: []matter{placed, waits, waits, lost}, row: "no policy", ungate: []string{worker, extra}, so: func(g *Gang, _ *World) {
			g.Serving.Spec.Template.GangPolicy = nil
		}},
		"its status is not written yet": {pods: []matter{waits, waits, waits, waits}, row: "group not listed", says: "status", so: func(g *Gang, _ *World) { g.Unlisted = true }},
		"all counted Pods have nodes":   {pods: []matter{placed, placed, waits, waits}, record: admitted, row: "all placed", writes: record(v1alpha1.GangPlaced, 0, 0)},
		"all have nodes after the deadline": {pods: []matter{placed, placed, waits, waits}, record: overdue, row: "all placed",
			writes: record(v1alpha1.GangPlaced, 0, 0)},
		"the other replica has nodes":                           {pods: []matter{waits, waits, placed, placed}, record: admitted, row: "all placed", writes: record(v1alpha1.GangPlaced, 0, 0)},
		"extra Pods wait":                                       {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods", writes: record(v1alpha1.GangPlaced, 0, 0), ungate: []string{extra, extraWorker}},
		"extra Pods would take what another group is to get":    {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods wait", again: time.Minute, says: "other groups", so: anotherIsAdmitted(1)},
		"there is room for extra Pods and another group":        {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods", writes: record(v1alpha1.GangPlaced, 0, 0), ungate: []string{extra, extraWorker}, so: anotherIsAdmitted(2)},
		"there is room for a part of a replica":                 {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods wait", again: time.Minute, says: "2 Pods need 2 GPUs together", so: func(_ *Gang, w *World) { w.Nodes = []Node{node("a", 1)} }},
		"extra Pods wait, and it ran before there was a policy": {pods: []matter{placed, placed, waits, waits}, row: "all placed", writes: record(v1alpha1.GangPlaced, 0, 0)},
		"nothing is counted": {pods: []matter{waits, lost, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods", writes: record(v1alpha1.GangPlaced, 0, 0), ungate: []string{extra, extraWorker}, so: func(g *Gang, _ *World) {
			g.Serving.Spec.Template.GangPolicy.MinRoleReplicas["prefill"] = 0
		}},
		"all have nodes":                               {pods: []matter{placed, placed, placed, placed}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "placed"},
		"extra Pods find no room":                      {pods: []matter{placed, placed, free, free}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "placed"},
		"it ran before there was a policy":             {pods: []matter{placed, placed, placed, placed}, row: "placed"},
		"one of two has no node at the end":            {pods: []matter{placed, free, waits, waits}, record: overdue, row: "deadline passed", delete: []string{entry, worker}, says: "within 1m0s"},
		"its extra Pods run from before":               {pods: []matter{free, waits, placed, waits}, record: overdue, row: "deadline passed", delete: []string{entry, extra}, says: "within 1m0s"},
		"its Pods are being deleted":                   {pods: []matter{goes(placed), waits, waits, waits}, record: overdue, row: "gives back", says: "gives back"},
		"its Pods were made again":                     {pods: []matter{waits, lost, waits, waits}, record: overdue, row: "gang missed", writes: record(v1alpha1.GangMissed, 0, 3), says: "within 1m0s"},
		"the process was killed at a gate":             {pods: []matter{free, waits, waits, waits}, record: admitted, row: "gate left", ungate: []string{worker}, again: 40 * time.Second},
		"it was killed at a gate of the other replica": {pods: []matter{waits, waits, free, waits}, record: admitted, row: "gate left", ungate: []string{extraWorker}, again: 40 * time.Second},
		"a stranger has taken the room of a Pod with a gate": {pods: []matter{free, waits, waits, waits}, record: admitted, row: "gate stays", again: 40 * time.Second, says: "1 Pod needs 1 GPU, and the nodes that it may use have 0 free",
			so: func(_ *Gang, w *World) { w.Nodes = []Node{node("a", 1)} }},
		"the scheduler works":                                    {pods: []matter{free, placed, waits, waits}, record: admitted, row: "scheduler works", again: 40 * time.Second, says: "its other Pods get nodes"},
		"a Pod is not created yet":                               {pods: []matter{waits, lost, lost, lost}, row: "Pod missing", says: "Pod " + worker + " is not created yet"},
		"a Pod of a placed group is going":                       {pods: []matter{waits, goes(placed), lost, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "Pod missing", says: worker},
		"somebody else has a gate on it":                         {pods: []matter{waits, waits, waits, waits}, row: "another gate", says: "Pod " + worker + " has the scheduling gate example.com/quota", so: addGate(1, "example.com/quota")},
		"it waits for its placement too":                         {pods: []matter{waits, waits, waits, waits}, row: "gang fits", ungate: []string{entry, worker}, writes: record(v1alpha1.GangAdmitted, 0, 0), again: time.Minute, so: addGate(1, podmeta.SchedulingGate)},
		"all nodes are lost, and no Pod has the gate":            {pods: []matter{free, free, waits, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no node left", delete: []string{entry, worker}, says: "starts anew"},
		"a Pod is about to get a node, and no other is there":    {pods: []matter{free, lost, lost, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no node left", delete: []string{entry}, says: "starts anew"},
		"it was made before there was a policy, and has no node": {pods: []matter{free, free, free, free}, row: "no gate"},
		"it was made before there was a policy":                  {pods: []matter{free, placed, waits, waits}, row: "no gate"},
		"all nodes of a placed group are lost":                   {pods: []matter{free, waits, free, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no node left", delete: []string{entry, extra}, says: "starts anew"},
		"all nodes but those of extra Pods are lost": {pods: []matter{waits, waits, placed, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no node left", delete: []string{extra}, says: "starts anew", so: func(g *Gang, _ *World) {
			other := &v1alpha1.ServingRole{Name: "other", Replicas: new(int32(1))}
			g.Replicas[1].Role, g.Serving.Spec.Template.GangPolicy.MinRoleReplicas["other"] = other, 0
		}},
		"a lost Pod fits": {pods: []matter{placed, waits, lost, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "rest fits", ungate: []string{worker}, writes: record(v1alpha1.GangPlaced, 0, 0), again: time.Minute},
		"a lost Pod fits, but not the new replica": {pods: []matter{placed, waits, waits, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "rest fits", ungate: []string{worker}, writes: record(v1alpha1.GangPlaced, 0, 0), again: time.Minute,
			so: func(g *Gang, w *World) {
				g.Serving.Spec.Template.GangPolicy, w.Nodes = &v1alpha1.GangPolicy{}, []Node{node("a", 2)}
			}},
		"a lost Pod fits, and the new replica is not created yet": {pods: []matter{placed, waits, waits, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "rest fits", ungate: []string{worker}, writes: record(v1alpha1.GangPlaced, 0, 0), again: time.Minute,
			so: func(g *Gang, _ *World) { g.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{} }},
		"a new replica fits, and somebody else has a gate on the lost Pod": {pods: []matter{placed, waits, waits, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "rest fits", ungate: []string{extra, extraWorker}, writes: record(v1alpha1.GangPlaced, 0, 0), again: time.Minute,
			so: func(g *Gang, w *World) {
				g.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{}
				addGate(1, "example.com/quota")(g, w)
			}},
		"half of the new replica would fit": {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no room for the rest", says: "2 Pods need 2 GPUs together",
			so: func(g *Gang, w *World) {
				g.Serving.Spec.Template.GangPolicy, w.Nodes = &v1alpha1.GangPolicy{}, []Node{node("a", 1)}
			}},
		"a lost Pod has no room": {pods: []matter{placed, waits, lost, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "no room for the rest", says: "1 Pod needs 1 GPU, and the nodes that it may use have 0 free",
			so: func(_ *Gang, w *World) { w.Nodes = nil }},
		"Kubernetes gives them nodes":                 {pods: []matter{grouped, grouped, waits, waits}, row: "Kubernetes places", says: "of its PodGroup"},
		"Kubernetes gives a created Pod a node again": {pods: []matter{lost, grouped, waits, waits}, record: overdue, row: "Kubernetes places", says: "of its PodGroup"},
		"Kubernetes has given them nodes":             {pods: []matter{placed, placed, waits, waits}, row: "all placed", writes: record(v1alpha1.GangPlaced, 0, 0), so: nameGroups(0, 1)},
		"extra Pods come after those of a PodGroup":   {pods: []matter{placed, placed, waits, waits}, record: record(v1alpha1.GangPlaced, 0, 0), row: "extra Pods", writes: record(v1alpha1.GangPlaced, 0, 0), ungate: []string{extra, extraWorker}, so: nameGroups(0, 1)},
		"a Pod with the gate is counted beside a PodGroup": {pods: []matter{placed, waits, lost, lost}, record: record(v1alpha1.GangPlaced, time.Hour, 0), row: "rest fits", ungate: []string{worker},
			writes: record(v1alpha1.GangPlaced, 0, 0), again: time.Minute, so: nameGroups(0)},
		"it missed its deadline": {pods: []matter{waits, waits, waits, waits}, record: record(v1alpha1.GangMissed, 15*time.Second, 2), row: "backs off", again: 5 * time.Second, says: "after a pause"},
		"it is tried again":      {pods: []matter{waits, waits, waits, waits}, record: record(v1alpha1.GangMissed, 20*time.Second, 2), row: "gang fits", ungate: []string{entry, worker}, writes: record(v1alpha1.GangAdmitted, 0, 2), again: time.Minute},
		"it missed very often":   {pods: []matter{waits, waits, waits, waits}, record: record(v1alpha1.GangMissed, time.Minute, 1000), row: "backs off", again: 4 * time.Minute, says: "after a pause"},
		"a group before it has no room": {pods: []matter{waits, waits, waits, waits}, row: "group before it", says: "group llama-before is first", so: func(g *Gang, w *World) {
			first := gangOf(g.Serving, 9, waits, waits, waits, waits)
			first.Name, first.Ordinal = "llama-before", -1
			w.Gangs = append(w.Gangs, NewGang(*first))
		}},
		"there is room for it": {pods: []matter{waits, waits, lost, lost}, record: none, row: "gang fits", ungate: []string{entry, worker}, writes: record(v1alpha1.GangAdmitted, 0, 0), again: time.Minute},
		"a GPU is missing": {pods: []matter{waits, waits, waits, waits}, row: "no room", says: "2 Pods need 2 GPUs together, and the nodes that they may use have 1 free", so: func(_ *Gang, w *World) {
			w.Nodes = []Node{node("a", 1), node("b", 0)}
		}},
		"the GPUs are on two nodes": {pods: []matter{waits, waits, waits, waits}, row: "no room", says: "2 Pods need 4 GPUs together, and the nodes that they may use have 4 free, but not as many on one node as a Pod needs",
			so: func(g *Gang, w *World) {
				w.Nodes = []Node{node("a", 1), node("b", 3)}
				for _, r := range g.Replicas {
					for _, m := range r.Pods {
						m.Pod.Spec.Containers[0].Resources.Limits = gpuList(2)
					}
				}
			}},
		"all are counted, and one is missing": {pods: all4(waits, waits, waits, lost), row: "Pod missing", says: extraWorker, so: func(g *Gang, _ *World) { g.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{} }},
		"all are counted, and fit": {pods: all4(waits, waits, waits, waits), row: "gang fits", ungate: all, writes: record(v1alpha1.GangAdmitted, 0, 0), again: time.Minute,
			so: func(g *Gang, _ *World) { g.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := &World{Now: now, Nodes: []Node{node("a", 2), node("b", 2)}}
			g := gangOf(serving("llama"), 1, c.pods...)
			g.Record = c.record
			if c.so != nil {
				c.so(g, w)
			}
			w.Gangs = append(w.Gangs, NewGang(*g))
			steps := Decide(w)
			s := steps[slices.IndexFunc(steps, func(s *Step) bool { return s.Of == w.Gangs[len(w.Gangs)-1] })]
			assert.Equal(t, c.row, s.Row)
			assert.Equal(t, [][]string{c.ungate, c.delete}, [][]string{names(s.Ungate), names(s.Delete)})
			var writes v1alpha1.ServingGroupGang
			if s.Record != nil {
				writes = *s.Record
			}
			assert.Equal(t, c.writes, writes)
			if c.again == 0 {
				assert.Zero(t, s.Again)
			} else {
				assert.Equal(t, c.again, s.Again.Sub(now))
			}
			assert.Equal(t, c.says == "", s.Why == "", "%s", s.Why)
			assert.Contains(t, s.Why, c.says)
		})
	}
}

func all4(matters ...matter) []matter { return matters }

// anotherIsAdmitted adds a group whose two Pods are about to get nodes.
func anotherIsAdmitted(free int64) func(*Gang, *World) {
	return func(_ *Gang, w *World) {
		other := NewGang(*gangOf(serving("another"), 1, waits, waits, lost, lost))
		other.Record = v1alpha1.ServingGroupGang{State: v1alpha1.GangAdmitted, Since: metav1.NewTime(now)}
		w.Gangs, w.Nodes = append(w.Gangs, other), []Node{node("a", free), node("b", 2)}
	}
}

// addGate gives a Pod another gate.
func addGate(to int, name string) func(*Gang, *World) {
	return func(g *Gang, _ *World) {
		spec := &g.Replicas[to/2].Pods[to%2].Pod.Spec
		spec.SchedulingGates = append(spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
	}
}

func TestTableOfTheDocumentHasTheRowsOfGangs(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Gangs\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var written, coded []string
	table := regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindStringSubmatch(section)
	require.NotNil(t, table)
	for line := range strings.Lines(table[1]) {
		written = append(written, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	for _, r := range rows {
		coded = append(coded, r.row)
	}
	assert.Equal(t, coded, written, "in this order: the first that fits counts")
}

func decisions(w *World) map[string]string {
	all := map[string]string{}
	for _, s := range Decide(w) {
		all[s.Of.Name] = s.Row
	}
	return all
}

// waiting returns a group of another ModelServing whose two counted Pods wait.
func waiting(name string, gpus int64, so ...func(*v1alpha1.ModelServing)) *Gang {
	s := serving(name)
	for _, change := range so {
		change(s)
	}
	return NewGang(*gangOf(s, gpus, waits, waits, lost, lost))
}

func created(ago time.Duration) func(*v1alpha1.ModelServing) {
	return func(s *v1alpha1.ModelServing) { s.CreationTimestamp = metav1.NewTime(now.Add(-ago)) }
}

func TestOldestGroupThatFitsIsAdmittedFirst(t *testing.T) {
	large, first, second := waiting("large", 3, created(3*time.Hour)), waiting("z", 1, created(2*time.Hour)), waiting("a", 1, created(time.Hour))
	w := &World{Now: now, Gangs: []*Gang{second, first, large}, Nodes: []Node{node("a", 2), node("b", 1)}}
	assert.Equal(t, map[string]string{"large-0": "no room", "z-0": "gang fits", "a-0": "no room"}, decisions(w))
	for _, m := range second.counted {
		m.Pod.Spec.Priority = new(int32(5))
	}
	assert.Equal(t, map[string]string{"large-0": "no room", "z-0": "no room", "a-0": "gang fits"}, decisions(w), "a higher priority comes first")
}

func TestRestOfAGroupComesBeforeOtherGroups(t *testing.T) {
	begun := NewGang(*gangOf(serving("z"), 1, placed, waits, lost, lost))
	begun.Record.State = v1alpha1.GangPlaced
	w := &World{Now: now, Gangs: []*Gang{waiting("a", 1, created(time.Hour)), begun}, Nodes: []Node{node("a", 2)}}
	assert.Equal(t, map[string]string{"a-0": "no room", "z-0": "rest fits"}, decisions(w))
}

func TestRoomOfPodsThatGetNodesIsReserved(t *testing.T) {
	for name, c := range map[string]struct {
		pods  []matter
		state v1alpha1.GangState
		ago   time.Duration
		row   string
	}{
		"admitted Pods":                 {[]matter{free, waits, lost, lost}, v1alpha1.GangAdmitted, 0, "no room"},
		"Pods that were admitted late":  {[]matter{free, free, lost, lost}, v1alpha1.GangAdmitted, time.Minute, "gang fits"},
		"extra Pods of a placed group":  {[]matter{placed, placed, free, free}, v1alpha1.GangPlaced, 59 * time.Second, "no room"},
		"extra Pods that find no room":  {[]matter{placed, placed, free, free}, v1alpha1.GangPlaced, time.Minute, "gang fits"},
		"Pods of a group that gave up":  {[]matter{waits, waits, waits, waits}, v1alpha1.GangMissed, 0, "gang fits"},
		"Pods of a group that is whole": {[]matter{placed, placed, lost, lost}, v1alpha1.GangPlaced, 0, "gang fits"},
	} {
		other := NewGang(*gangOf(serving("other"), 1, c.pods...))
		other.Record = v1alpha1.ServingGroupGang{State: c.state, Since: metav1.NewTime(now.Add(-c.ago))}
		w := &World{Now: now, Gangs: []*Gang{waiting("a", 1), other}, Nodes: []Node{node("a", 3)}}
		assert.Equal(t, c.row, decisions(w)["a-0"], name)
	}
}

// A group may have been placed long before there is room for its extra Pods.
func TestRoomOfExtraPodsThatAreLetGoLateIsReserved(t *testing.T) {
	extra := func(record *v1alpha1.ServingGroupGang, matter matter) *Gang {
		g := NewGang(*gangOf(serving("other"), 1, placed, placed, matter, matter))
		g.Record = *record
		return g
	}
	nodes := []Node{node("a", 3)}
	s := Decide(&World{Now: now, Gangs: []*Gang{extra(&v1alpha1.ServingGroupGang{State: v1alpha1.GangPlaced, Since: metav1.NewTime(now.Add(-time.Hour))}, waits)}, Nodes: nodes})[0]
	require.Equal(t, "extra Pods", s.Row)
	require.NotNil(t, s.Record)
	assert.Equal(t, "no room", decisions(&World{Now: now, Gangs: []*Gang{waiting("a", 1), extra(s.Record, free)}, Nodes: nodes})["a-0"])
}

func TestPolicyCountsByRole(t *testing.T) {
	s := serving("llama")
	s.Spec.Template.Roles = []v1alpha1.ServingRole{{Name: "prefill", Replicas: new(int32(4))}, {Name: "decode", Replicas: new(int32(4))}}
	for want, policy := range map[int]map[string]int32{16: nil, 8: {"prefill": 2, "decode": 2}, 6: {"prefill": 2, "decode": 1}, 10: {"prefill": 1}} {
		of := &v1alpha1.GangPolicy{MinRoleReplicas: policy}
		for n, spelled := range [][2]*v1alpha1.GangPolicy{{of, nil}, {nil, of}} {
			s.Spec.Template.GangPolicy, s.Spec.Template.LowerGangPolicy = spelled[0], spelled[1]
			g := Gang{Serving: s}
			for i := range s.Spec.Template.Roles {
				role := &s.Spec.Template.Roles[i]
				for range role.Count() {
					g.Replicas = append(g.Replicas, &Replica{Role: role, Pods: []*Member{{}, {}}})
				}
			}
			assert.Len(t, NewGang(g).counted, want, "%v, spelling %d", policy, n)
			assert.True(t, s.Spec.UsesGates())
		}
	}
}
