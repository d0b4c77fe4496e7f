package ranks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	program "hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/schedules"
)

// This file plays groups whose models are changed in place: groups of a prefill and a decode server. In
// half of the worlds the decode server has two ranks.

const (
	groupName = "pair"
	badModel  = "bad"  // never starts
	halfModel = "half" // never starts in a worker
	loneModel = "lone" // never starts but in a rank
	models    = 3      // that start
)

// failing are the models that do not start.
var failing = []string{loneModel, halfModel, badModel}

// groupTruth is what must hold of such groups.
type groupTruth struct {
	w     *world
	stays string // the model that Pods have in the end, which are those that there were; empty: any
	// healthy has the keys of the swaps that have waited for their commit.
	healthy map[string]bool
	uids    map[string]types.UID // of Pods, by their names, as they were when the first change began
	undone  map[string]undoing   // of groups, whose change was undone last
	undoes  int                  // how often changes were undone
}

func modelName(n uint64) string { return fmt.Sprintf("model-%d", n%models) }

// setUpGroups makes nodes with launchers, and a ModelServing that is changed in place.
func setUpGroups(w *world) { setUpPairs(w, int32(w.Draw("workers of decode", 2))) }

// setUpPairs does that with so many workers of the decode servers.
func setUpPairs(w *world, workers int32) {
	w.group = &groupTruth{w: w, healthy: map[string]bool{}, uids: map[string]types.UID{}, undone: map[string]undoing{}}
	w.api.put(&v1alpha1.LauncherConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: poolName},
		Spec: v1alpha1.LauncherConfigSpec{
			Population:      v1alpha1.Population{NodeSelector: map[string]string{nodeLabel: "yes"}},
			AllocationCheck: v1alpha1.AllocationCheck{Mode: v1alpha1.AllocationCheckNone},
		},
	})
	groups := int32(1 + w.Draw("groups", 2))
	for n := range 2 + workers {
		name := fmt.Sprintf("node-%d", n)
		w.api.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{nodeLabel: "yes"}}})
		w.addLauncher(name, []string{fmt.Sprintf("GPU-%d-0", n), fmt.Sprintf("GPU-%d-1", n)})
	}
	for _, name := range []string{modelName(0), modelName(1), modelName(2), loneModel, halfModel, badModel} {
		w.api.put(&v1alpha1.InferenceServerConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: v1alpha1.InferenceServerConfigSpec{LauncherConfigName: poolName, ModelServerConfig: v1alpha1.ModelServerConfig{
				Port: 8000, Args: []string{"org/" + name},
			}},
		})
	}
	role := func(name string, workers int32) v1alpha1.ServingRole {
		return v1alpha1.ServingRole{Name: name, Replicas: new(int32(1)), WorkerReplicas: &workers, InferenceServerConfig: modelName(0)}
	}
	w.api.put(&v1alpha1.ModelServing{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: groupName},
		Spec: v1alpha1.ModelServingSpec{
			Replicas: &groups, UpdateMode: v1alpha1.UpdateInPlace,
			Template: v1alpha1.ServingGroupTemplate{Roles: []v1alpha1.ServingRole{role("prefill", 0), role("decode", workers)}},
		},
	})
}

// happen changes the template.
func (g *groupTruth) happen(e event) {
	if len(g.uids) == 0 {
		for _, pod := range g.pods() {
			g.uids[pod.Name] = pod.UID
		}
	}
	model := modelName(e.arg)
	if n := int(e.arg%8) - 5; n >= 0 {
		model = failing[n]
	}
	g.w.editServing(groupName, func(s *v1alpha1.ModelServing) {
		switch roles := s.Spec.Template.Roles; e.what {
		case "change model":
			roles[0].InferenceServerConfig, roles[1].InferenceServerConfig = model, model
		case "change role":
			roles[e.arg/8%2].InferenceServerConfig = model
		case "change mode":
			s.Spec.UpdateMode = []string{v1alpha1.UpdateRecreate, v1alpha1.UpdateInPlace, v1alpha1.UpdateInPlace}[e.arg%3]
			s.Spec.OnMisfit = []string{"", v1alpha1.UpdateRecreate}[e.arg/4%2]
		}
	})
}

// calmDown has a model wanted that can start.
func (g *groupTruth) calmDown() {
	if g.stays != "" {
		return
	}
	g.w.editServing(groupName, func(s *v1alpha1.ModelServing) {
		for i := range s.Spec.Template.Roles {
			if role := &s.Spec.Template.Roles[i]; slices.Contains(failing, role.InferenceServerConfig) {
				role.InferenceServerConfig = modelName(1)
			}
		}
	})
}

func (g *groupTruth) pods() (all []*corev1.Pod) {
	for _, pod := range g.w.api.pods() {
		if podmeta.IsRequester(pod) && podmeta.ServingOf(pod) != nil {
			all = append(all, pod)
		}
	}
	return all
}

// recordOf returns the record of a requester.
func (g *groupTruth) recordOf(pod *corev1.Pod) *podmeta.Binding {
	for _, uid := range sorted(g.w.launchers) {
		on := g.w.api.pod(g.w.launchers[uid].pod)
		if on == nil {
			continue
		}
		records, _ := podmeta.ReadBindings(on)
		for n := range records {
			if records[n].RequesterUID == pod.UID {
				return &records[n]
			}
		}
	}
	return nil
}

// changedBy returns the Pods of the group whose change a swap is of, and the change; nil: it is of none.
func (g *groupTruth) changedBy(s *swap) (group string, to string, members []*corev1.Pod) {
	for _, pod := range g.pods() {
		if record := g.recordOf(pod); record != nil && record.Change != nil && record.Change.Instance != "" && record.Next().SwapKey() == s.key {
			group, to = pod.Labels[podmeta.LabelServingGroup], record.Change.To
		}
	}
	for _, pod := range g.pods() {
		if group != "" && pod.Labels[podmeta.LabelServingGroup] == group && pod.DeletionTimestamp == nil {
			members = append(members, pod)
		}
	}
	return group, to, members
}

// begins checks a swap of a change that is about to put a model to sleep.
func (g *groupTruth) begins(s *swap) {
	_, to, members := g.changedBy(s)
	for _, pod := range members {
		told, record := podmeta.ReadSwapTo(pod), g.recordOf(pod)
		if told.ID() != to || record == nil || record.Change == nil || record.Change.To != to {
			continue
		}
		if of := g.w.truth.swaps[record.Next().SwapKey()]; of == nil || !of.prepared {
			g.w.violated("begins alone", "%s begins, and Pod %s of its group has not prepared", s.key, pod.Name)
		}
	}
}

// commits checks that the group has its new models for good before one is committed, and that all of
// them were healthy.
func (g *groupTruth) commits(s *swap) {
	group, to, members := g.changedBy(s)
	if group == "" {
		return
	}
	for _, pod := range members {
		if record := g.recordOf(pod); record != nil && record.Change != nil && record.Change.To == to && record.Change.Instance != "" && !g.healthy[record.Next().SwapKey()] {
			g.w.violated("commits early", "%s is committed, and the new model of Pod %s was never healthy", s.key, pod.Name)
		}
	}
	for _, of := range g.w.serving(groupName).Status.Groups {
		if of.Name == group && (of.Change == nil || of.Change.State != v1alpha1.ChangeCommitted || !strings.HasPrefix(to, of.Change.Revision)) {
			g.w.violated("commits early", "%s is committed, and the status of %s has %+v", s.key, group, of.Change)
		}
	}
}

// checkRest checks that each group has all of its new models or all of its old ones, and that no other
// model is awake.
func (g *groupTruth) checkRest() {
	served := map[string]string{} // instances, by the Pods that have them
	models := map[string][]string{}
	for _, pod := range g.pods() {
		record := g.recordOf(pod)
		if record == nil {
			g.w.violated("is not bound", "%s", pod.Name)
			continue
		}
		if record.Change != nil || podmeta.ReadSwapTo(pod).ID() != "" {
			g.w.violated("changes for ever", "%s: %+v %s", pod.Name, record.Change, pod.Annotations[podmeta.AnnotationSwapTo])
		}
		served[record.Instance] = pod.Name
		group, wants := pod.Labels[podmeta.LabelServingGroup], pod.Annotations[podmeta.AnnotationInferenceServerConfig]
		models[group] = append(models[group], pod.Labels[podmeta.LabelServingRevision])
		if e := g.engine(record.Instance); e == nil || !e.is(program.Awake) || e.Args[0] != "org/"+wants {
			g.w.violated("serves another model", "%s asks for %s, and has instance %s: %+v", pod.Name, wants, record.Instance, e)
		}
	}
	serving := g.w.serving(groupName)
	for group, of := range models {
		if slices.Sort(of); of[0] != of[len(of)-1] {
			g.w.violated("mixed", "the Pods of group %s have the revisions %v", group, of)
		}
		if g.stays == "" && of[0] != serving.Status.Revision {
			g.w.violated("not rolled out", "group %s has the revision %s and not %s: %+v", group, of[0], serving.Status.Revision, serving.Status.Groups)
		}
	}
	if g.stays != "" {
		g.keepsPods()
	}
	for _, uid := range sorted(g.w.launchers) {
		for _, id := range sorted(g.w.launchers[uid].all) {
			if e := g.w.launchers[uid].all[id]; served[id] == "" && !e.is(program.Sleeping) {
				g.w.violated("serves nobody", "instance %s is %s", id, e.State)
			}
		}
	}
}

func (g *groupTruth) engine(id string) *engine {
	for _, uid := range sorted(g.w.launchers) {
		if e := g.w.launchers[uid].all[id]; e != nil {
			return e
		}
	}
	return nil
}

// keepsPods checks that the Pods are those that there were, and have the model that they should have.
func (g *groupTruth) keepsPods() {
	for _, pod := range g.pods() {
		if g.uids[pod.Name] != pod.UID {
			g.w.violated("another Pod", "%s is %s, and was %s", pod.Name, pod.UID, g.uids[pod.Name])
		}
		if has := pod.Annotations[podmeta.AnnotationInferenceServerConfig]; has != g.stays {
			g.w.violated("another model", "%s has %s and not %s", pod.Name, has, g.stays)
		}
	}
}

var changeChances = []chance{
	{"change model", 22}, {"change role", 8}, {"change mode", 4},
	{"delete requester", 5}, {"force requester", 3}, {"restart requester", 4},
	{"kill engine", 6}, {"fail starts", 7}, {"refuse swaps", 7}, {"delete instance", 3}, {"slow orders", 5},
	{"end launcher", 4}, {"restart launcher", 6}, {"silence launcher", 6}, {"replace launcher", 2},
	{"API down", 3}, {"API flaky", 4}, {"kill controller", 8}, {"kill at step", 16},
}

var changeThemes = [][]string{
	{}, {"kill at step", "fail starts"}, {"kill at step", "slow orders"}, {"refuse swaps", "change role"}, {"restart launcher", "kill at step"},
	{"kill engine", "delete requester"}, {"silence launcher", "kill controller"}, {"end launcher", "API flaky"},
}

func drawChanges(seed uint64) []event { return drawFrom(seed, changeChances, changeThemes) }

// TestNoScheduleMixesTheModelsOfAGroup runs schedules of changes and faults, as
// TestNoScheduleBreaksWhatMustHold.
func TestNoScheduleMixesTheModelsOfAGroup(t *testing.T) {
	schedules.Play(t, schedules.FromEnvironment(t, standard), func(t *testing.T, seed uint64) []string {
		return simulateIn(t, seed, drawChanges(seed), false, setUpGroups).wrong
	}, func(t *testing.T, seed uint64, wrong []string) string {
		t.Helper()
		return storyOf(t, seed, drawChanges(seed), wrong, setUpGroups)
	})
}

// TestControllerKilledAtEachCallChangesAllOrNone kills the controller at each of its calls while a group is
// changed: to a model that starts, and to one that does not.
func TestControllerKilledAtEachCallChangesAllOrNone(t *testing.T) {
	step := uint64(6)
	switch {
	case os.Getenv("HOTSEAT_TEST_LONG") != "":
		step = 1
	case standard < 100: // with the race detector
		step = 25
	}
	for _, to := range []struct {
		arg   uint64
		stays string
	}{{1, modelName(1)}, {6, modelName(0)}, {7, modelName(0)}} {
		for at := uint64(0); at < 140; at += step {
			script := []event{{30 * time.Second, "kill at call", at}, {30 * time.Second, "change model", to.arg}}
			out := simulateIn(t, at%5+1, script, false, func(w *world) {
				setUpGroups(w)
				if w.group.stays = to.stays; to.arg == 6 && w.serving(groupName).Spec.Template.Roles[1].Size() == 1 {
					w.group.stays = halfModel // there is no worker that could fail
				}
			})
			require.Empty(t, out.wrong, "killed at call %d, by change %d", at, to.arg)
		}
	}
}

// TestRanksAreChangedInPlaceTogether plays changes without faults: to two new models, after each back to
// the first one, which may sleep, and to two that do not start: in the worker, and in the other server.
func TestRanksAreChangedInPlaceTogether(t *testing.T) {
	script := []event{
		{30 * time.Second, "change model", 1}, {80 * time.Second, "change model", 9}, {230 * time.Second, "change model", 8}, {280 * time.Second, "change model", 9},
		{430 * time.Second, "change model", 6}, {490 * time.Second, "change model", 5},
	}
	woken := 0
	for seed := range uint64(6) {
		groups := 0
		out := simulateIn(t, seed+1, script, false, func(w *world) {
			setUpPairs(w, 1)
			w.group.stays = modelName(0)
			groups = int(w.serving(groupName).Spec.Count())
		})
		require.Empty(t, out.wrong, "seed %d", seed+1)
		assert.Equal(t, 5*groups, out.served, "seed %d: servers that began to serve", seed+1)
		woken += out.woken
	}
	assert.Positive(t, woken, "servers that slept before")
}
