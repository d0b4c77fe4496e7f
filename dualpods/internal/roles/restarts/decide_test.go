package restarts

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

// ready returns a Pod that is as it should be.
func ready(uid types.UID, replica string) Pod {
	return Pod{Name: "llama-0-" + replica + "-0", UID: uid, Ready: true, Changed: now.Add(-time.Hour), Placed: true, Current: true, Restarts: true}
}

// pair returns a group of two roles, each with one Pod, which runs.
func pair() *Group {
	return &Group{
		Now: now, Name: "llama-0", Policy: v1alpha1.RecoverRole, Grace: time.Minute, Timeout: 10 * time.Minute, Max: 2,
		Replicas: []Replica{
			{Role: "prefill", Name: "prefill-0", Size: 1, OneByOne: true, Pods: []Pod{ready("p", "prefill-0")}},
			{Role: "decode", Name: "decode-0", Size: 1, OneByOne: true, Pods: []Pod{ready("d", "decode-0")}},
		},
		Record: v1alpha1.ServingGroupRestart{Ran: []string{"prefill-0", "decode-0"}},
	}
}

func (g *Group) decodes() *Pod { return &g.Replicas[1].Pods[0] }

// unready has the Pod of decode have been not ready for that long.
func unready(d time.Duration) func(*Group) {
	return func(g *Group) {
		p := g.decodes()
		p.Ready, p.Changed = false, now.Add(-d)
		g.Record.NotReady = []v1alpha1.NotReadyPod{{UID: "d", Since: ago(d), Changed: ago(d)}}
		g.Record.StalledSince = &metav1.Time{Time: now.Add(-d)}
	}
}

// recreated has the group have been recreated so often, the last time that long ago.
func recreated(times int32, d time.Duration) func(*Group) {
	return func(g *Group) {
		at := ago(d)
		g.Record.Restarts, g.Record.Last = times, &at
	}
}

func by(policy v1alpha1.RecoveryPolicy) func(*Group) {
	return func(g *Group) { g.Policy = policy }
}

// lost has the Pod of decode be gone.
func lost(g *Group) { g.Replicas[1].Pods = nil }

func stalledFor(d time.Duration) func(*Group) {
	return func(g *Group) {
		at := ago(d)
		g.decodes().Ready, g.Record.StalledSince = false, &at
		g.Record.Ran = []string{"prefill-0"}
	}
}

// second has decode have another replica, which is ready.
func second(g *Group) {
	g.Replicas = append(g.Replicas, Replica{Role: "decode", Name: "decode-1", Size: 1, OneByOne: true, Pods: []Pod{ready("d1", "decode-1")}})
}

// plainWorkers has decode have a worker that is not a rank.
func plainWorkers(g *Group) {
	r := &g.Replicas[1]
	w := ready("w", "decode-0")
	w.Restarts, r.Pods[0].Restarts, r.OneByOne, r.Size = false, false, false, 2
	r.Pods = append(r.Pods, w)
}

func TestEachRowOfRestarts(t *testing.T) {
	covered := map[string]bool{}
	for name, c := range map[string]struct {
		so      []func(*Group)
		row     string
		level   Level
		leaving []types.UID
		state   v1alpha1.ServingGroupState
		says    string
		again   time.Duration
		holds   bool
	}{
		"it runs":                                    {row: "nothing to restart"},
		"the policy is None, a Pod is overdue":       {so: []func(*Group){unready(time.Hour), by(v1alpha1.RecoverNone)}, row: "nothing restarts"},
		"a Pod has just become not ready":            {so: []func(*Group){unready(0)}, row: "in its grace", again: time.Minute},
		"half of its grace is over":                  {so: []func(*Group){unready(30 * time.Second)}, row: "in its grace", again: 30 * time.Second},
		"its grace is over":                          {so: []func(*Group){unready(time.Minute)}, row: "restart in place", level: InPlace, state: v1alpha1.GroupProgressing, says: "Pod llama-0-decode-0-0 was ready, and has not been for 1m0s"},
		"its grace is over, it is ready again":       {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().Ready = true }}, row: "nothing to restart"},
		"its grace is over, it is another Pod":       {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().UID = "e" }}, row: "in its grace", again: time.Minute},
		"its grace is over, it was ready in between": {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().Changed = now.Add(-time.Second) }}, row: "in its grace", again: time.Minute},
		"its grace is over, its server loads":        {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().Loads, g.decodes().Restarts = true, false }}, row: "not ready yet", again: 9 * time.Minute},
		"its grace is over, it was in place before":  {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().Ends = 1 }}, row: "recreate role", level: Role, leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing, says: "was ready"},
		"its grace is over, it is a plain Pod":       {so: []func(*Group){unready(time.Minute), func(g *Group) { g.decodes().Restarts = false }}, row: "recreate role", level: Role, leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing},
		"its grace is over, by the whole group":      {so: []func(*Group){unready(time.Minute), by(v1alpha1.RecoverGroup)}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing},
		"a Pod never ran":                            {so: []func(*Group){unready(time.Minute), func(g *Group) { g.Record.Ran = []string{"prefill-0"} }}, row: "not ready yet", again: 9 * time.Minute},
		"a server has ended twice":                   {so: []func(*Group){unready(0), func(g *Group) { g.decodes().Ends = 2 }}, row: "recreate role", level: Role, leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing, says: "has ended 2 times soon after it served"},
		"a server has ended twice, and serves again": {so: []func(*Group){func(g *Group) { g.decodes().Ends = 2 }}, row: "nothing to restart"},
		"the same, after its Pods were recreated": {so: []func(*Group){unready(0), func(g *Group) {
			g.decodes().Ends = 3
			g.Record.Roles = []v1alpha1.RecreatedRole{{Name: "decode-0", At: ago(time.Minute)}}
		}}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing},
		"a Pod has ended":                       {so: []func(*Group){func(g *Group) { g.decodes().Ended, g.decodes().Ready = true, false }}, row: "recreate role", level: Role, leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing, says: "has ended"},
		"a Pod is gone":                         {so: []func(*Group){lost}, row: "nothing to restart"},
		"a Pod is gone, by the whole group":     {so: []func(*Group){lost, by(v1alpha1.RecoverGroup)}, row: "recreate group", level: Whole, leaving: []types.UID{"p"}, state: v1alpha1.GroupProgressing, says: "a Pod of decode-0 is gone"},
		"a Pod leaves, by the whole group":      {so: []func(*Group){func(g *Group) { g.decodes().Leaving = true }, by(v1alpha1.RecoverGroup)}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing},
		"a Pod of an older template leaves":     {so: []func(*Group){func(g *Group) { g.decodes().Leaving, g.decodes().Current = true, false }, by(v1alpha1.RecoverGroup)}, row: "nothing to restart"},
		"a Pod that never ran is gone":          {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), func(g *Group) { g.Record.Ran = nil }}, row: "nothing to restart"},
		"a Pod of two is gone":                  {so: []func(*Group){plainWorkers, func(g *Group) { g.Replicas[1].Pods = g.Replicas[1].Pods[1:] }}, row: "recreate role", level: Role, leaving: []types.UID{"w"}, state: v1alpha1.GroupProgressing},
		"a rank of two is gone":                 {so: []func(*Group){plainWorkers, func(g *Group) { g.Replicas[1].OneByOne, g.Replicas[1].Pods = true, g.Replicas[1].Pods[1:] }}, row: "nothing to restart"},
		"two Pods are gone, by the whole group": {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), func(g *Group) { g.Replicas[0].Pods[0].Leaving = true }}, row: "recreate group", level: Whole, leaving: []types.UID{"p"}, state: v1alpha1.GroupProgressing},
		"the template is not valid":             {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), func(g *Group) { g.Held = true }}, row: "template invalid"},
		"its models are being changed in place": {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), func(g *Group) { g.Changes = true }}, row: "changes in place"},
		"all Pods are being recreated": {so: []func(*Group){recreated(1, 0), func(g *Group) {
			g.Record.Whole, g.Record.Leaving, g.Record.Ran = true, []types.UID{"p", "d"}, nil
			g.Replicas[0].Pods[0].Leaving = true
		}}, row: "group leaves", leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing, says: "2 are not gone yet"},
		"all Pods were recreated": {so: []func(*Group){recreated(1, 0), func(g *Group) {
			g.Record.Whole, g.Record.Leaving, g.Record.Ran = true, []types.UID{"old"}, nil
			g.decodes().Ready = false
		}}, row: "not ready yet", again: 10 * time.Minute},
		"the Pods of a replica are being recreated": {so: []func(*Group){func(g *Group) {
			g.Record.Leaving, g.Record.Ran = []types.UID{"d"}, []string{"prefill-0"}
			g.decodes().Leaving = true
		}}, row: "role leaves", leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing},
		"it has stalled for long":                  {so: []func(*Group){stalledFor(10 * time.Minute)}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing, says: "group llama-0 has not been ready for 10m0s: Pod llama-0-decode-0-0 is not"},
		"a second replica never got ready":         {so: []func(*Group){second, stalledFor(10 * time.Minute)}, row: "recreate role", level: Role, leaving: []types.UID{"d"}, state: v1alpha1.GroupProgressing, says: "group llama-0 serves, but has not been ready for 10m0s: Pod llama-0-decode-0-0 is not"},
		"the same, a minute before":                {so: []func(*Group){second, stalledFor(9 * time.Minute)}, row: "not ready yet", again: time.Minute},
		"the same, by the whole group":             {so: []func(*Group){second, stalledFor(10 * time.Minute), by(v1alpha1.RecoverGroup)}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d", "d1"}, state: v1alpha1.GroupProgressing},
		"the same, and it lacks nodes":             {so: []func(*Group){second, stalledFor(10 * time.Minute), func(g *Group) { g.Lacks = true }}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d", "d1"}, state: v1alpha1.GroupProgressing},
		"the same, and no prefill server is ready": {so: []func(*Group){second, stalledFor(10 * time.Minute), func(g *Group) { g.Replicas[0].Pods[0].Ready = false }}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d", "d1"}, state: v1alpha1.GroupProgressing},
		"two replicas never got ready": {so: []func(*Group){second, stalledFor(10 * time.Minute), func(g *Group) {
			late := ready("d2", "decode-2")
			late.Ready = false
			g.Replicas = append(g.Replicas, Replica{Role: "decode", Name: "decode-2", Size: 1, OneByOne: true, Pods: []Pod{late}})
		}}, row: "recreate role", level: Role, leaving: []types.UID{"d", "d2"}, state: v1alpha1.GroupProgressing},
		"it waits for a node":                              {so: []func(*Group){stalledFor(10 * time.Minute), func(g *Group) { g.decodes().Placed = false }}, row: "nothing to restart"},
		"it holds nodes in vain":                           {so: []func(*Group){stalledFor(10 * time.Minute), func(g *Group) { g.decodes().Placed, g.Lacks = false, true }}, row: "recreate group", level: Whole, leaving: []types.UID{"p", "d"}, state: v1alpha1.GroupProgressing, says: "not all of its Pods have a node"},
		"it stalls again, a moment after it was recreated": {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), recreated(1, 4*time.Second)}, row: "group backs off", again: 6 * time.Second, state: v1alpha1.GroupProgressing, holds: true},
		"the back-off is over":                             {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), recreated(1, 10*time.Second)}, row: "recreate group", level: Whole, leaving: []types.UID{"p"}, state: v1alpha1.GroupProgressing},
		"it was recreated too often":                       {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), recreated(2, 20*time.Minute)}, row: "group failed", again: 40 * time.Minute, state: v1alpha1.GroupFailed, says: "the group was recreated 2 times, and is tried again at 2026-01-02T03:44:05Z", holds: true},
		"the hour is over":                                 {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), recreated(2, time.Hour)}, row: "recreate group", level: Whole, leaving: []types.UID{"p"}, state: v1alpha1.GroupProgressing},
		"it is not to be recreated":                        {so: []func(*Group){lost, by(v1alpha1.RecoverGroup), func(g *Group) { g.Max = 0 }}, row: "group failed", again: time.Hour, state: v1alpha1.GroupFailed, holds: true},
		"it runs again":                                    {so: []func(*Group){recreated(2, time.Minute)}, row: "runs again", again: Settled},
		"a clock was ahead":                                {so: []func(*Group){unready(-time.Hour)}, row: "in its grace", again: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			covered[c.row] = true
			g := pair()
			for _, so := range c.so {
				so(g)
			}
			d := Decide(g)
			assert.Equal(t, c.row, d.Row, d.Why)
			assert.Equal(t, c.level, d.Level)
			assert.Equal(t, c.leaving, d.Record.Leaving)
			assert.Equal(t, c.state, d.State)
			assert.Equal(t, c.state != "", d.Reason != "")
			assert.Contains(t, d.Why, c.says)
			assert.Equal(t, c.again, d.Again)
			assert.Equal(t, c.holds, d.Holds)
			g.Record = d.Record
			if again := Decide(g); c.level == "" {
				assert.Equal(t, d, again, "nothing is written twice")
			} else {
				assert.Empty(t, again.Level, "nothing is restarted twice")
			}
		})
	}
	for _, r := range rows {
		assert.True(t, covered[r.row], r.row)
	}
}

func TestTheDocumentHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## Restarts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table := regexp.MustCompile(`(?m)^\| row \|.*\n\|-.*\n((?:\|.*\n)+)`).FindStringSubmatch(section)
	require.NotNil(t, table)
	var written, coded []string
	for line := range strings.Lines(table[1]) {
		written = append(written, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	for _, r := range rows {
		coded = append(coded, r.row)
	}
	assert.Equal(t, coded, written, "in this order: the first that fits counts")
}

func TestNewControllerWaitsTheRestOfTheGrace(t *testing.T) {
	g := pair()
	unready(30 * time.Second)(g)
	g.Record = Decide(g).Record // written; another process goes on
	g.Now = now.Add(29 * time.Second)
	assert.Equal(t, time.Second, Decide(g).Again)
	g.Now = now.Add(30 * time.Second)
	assert.Equal(t, InPlace, Decide(g).Level)
}

func TestRestartsAreForgottenOnceTheGroupHasRunForLong(t *testing.T) {
	g := pair()
	recreated(2, time.Hour)(g)
	g.Record = Decide(g).Record
	require.NotNil(t, g.Record.RunsSince)
	g.Now = now.Add(Settled - time.Second)
	assert.EqualValues(t, 2, Decide(g).Record.Restarts)
	g.Now = now.Add(Settled)
	assert.Equal(t, v1alpha1.ServingGroupRestart{Ran: []string{"prefill-0", "decode-0"}}, Decide(g).Record)
}

// A Pod that took the place of another one is starting.
func TestPodThatTakesAPlaceIsNotOneThatRan(t *testing.T) {
	g := pair()
	lost(g)
	g.Record = Decide(g).Record
	assert.Equal(t, []string{"prefill-0"}, g.Record.Ran)
	p := ready("e", "decode-0")
	p.Ready = false
	g.Replicas[1].Pods, g.Now = []Pod{p}, now.Add(5*time.Minute)
	assert.Equal(t, "not ready yet", Decide(g).Row)
}

func TestLaterPodsOfARecreatedGroupStay(t *testing.T) {
	g := pair()
	by(v1alpha1.RecoverGroup)(g)
	lost(g)
	d := Decide(g)
	require.Equal(t, Whole, d.Level)
	assert.True(t, d.HoldsReplica(nil), "nothing is created before all are gone")
	g.Record = d.Record
	g.Replicas[0].Pods, g.Replicas[1].Pods = []Pod{ready("q", "prefill-0")}, []Pod{ready("e", "decode-0")}
	d = Decide(g)
	assert.Empty(t, d.Record.Leaving)
	assert.False(t, d.Leaves("q"))
	assert.False(t, d.HoldsReplica([]types.UID{"q"}))
	assert.True(t, slices.Contains(d.Record.Ran, "prefill-0"))
}

func TestTroublesOfTwoReplicasAreHandledOneAfterTheOther(t *testing.T) {
	g := pair()
	for n := range g.Replicas {
		p := &g.Replicas[n].Pods[0]
		p.Ended, p.Ready = true, false
	}
	g.Record = Decide(g).Record
	assert.Equal(t, []types.UID{"p"}, g.Record.Leaving)
	d := Decide(g)
	assert.Equal(t, Role, d.Level)
	assert.Equal(t, []types.UID{"p", "d"}, d.Record.Leaving)
}

// Each of two groups has a node for one of its Pods, and none for the other.
func TestGroupsThatHoldNodesForEachOtherGiveThemBack(t *testing.T) {
	for _, name := range []string{"llama-0", "llama-1"} {
		g := pair()
		g.Name, g.Lacks = name, true
		lost(g)
		d := Decide(g)
		assert.Equal(t, "not ready yet", d.Row)
		g.Record, g.Now = d.Record, now.Add(d.Again)
		d = Decide(g)
		assert.Equal(t, Whole, d.Level)
		assert.Equal(t, []types.UID{"p"}, d.Record.Leaving)
		assert.True(t, d.HoldsReplica(nil), "nothing is created before the node is free")
	}
}
