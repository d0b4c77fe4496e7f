package groups

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func (s *site) names() []string { return slices.Sorted(maps.Keys(s.images())) }

// allReady says that all Pods are ready.
func (s *site) allReady() {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, s.api.List(s.t.Context(), &pods))
	for i := range pods.Items {
		if !podmeta.Ready(&pods.Items[i]) {
			s.become(pods.Items[i].Name, corev1.ConditionTrue)
		}
	}
}

func (s *site) cost(name, cost string) {
	s.t.Helper()
	var pod corev1.Pod
	require.True(s.t, s.read(name, &pod), name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, cost)
	require.NoError(s.t, s.api.Update(s.t.Context(), &pod))
}

// replicas has the role r have n replicas.
func (s *site) replicas(n int32) {
	s.t.Helper()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].Replicas = &n })
}

func TestGroupsAreAddedAndGoInReverseOrder(t *testing.T) {
	s := routers(t)
	count := func(n int32) {
		s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = &n })
		s.writes = nil
		s.passes(3)
	}
	count(2)
	count(4)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-1-r-0-0", "llama-2-r-0-0", "llama-3-r-0-0"}, s.names())
	count(2)
	assert.Equal(t, []string{"delete Pod llama-3-r-0-0", "delete Pod llama-2-r-0-0"}, slices.DeleteFunc(s.writes, func(w string) bool { return strings.HasPrefix(w, "delete Service") }))
	assert.Len(t, s.groups(), 2)
}

func TestRoleIsScaledGroupByGroup(t *testing.T) {
	s := routers(t)
	revision := s.status().Revision
	s.replicas(2)
	for group := 2; group >= 0; group-- {
		s.passes(3)
		assert.Len(t, s.names(), 6-group, "the next group waits until this one runs")
		state := s.groups()[group]
		assert.Equal(t, []any{v1alpha1.GroupScaling, revision, map[string]int32{"r": 2}}, []any{state.State, state.Revision, state.RoleReplicas})
		s.allReady()
		s.passes(1)
		assert.Equal(t, v1alpha1.GroupRunning, s.groups()[group].State)
		progressing := meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionProgressing)
		assert.Equal(t, map[bool]string{true: v1alpha1.ReasonScaling, false: v1alpha1.ReasonIdle}[group > 0], progressing.Reason)
	}
	s.replicas(1)
	s.passes(1)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-0-r-1-0", "llama-1-r-0-0", "llama-1-r-1-0", "llama-2-r-0-0"}, s.names())
	assert.Equal(t, v1alpha1.GroupScaling, s.groups()[2].State)
	s.passes(6)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-1-r-0-0", "llama-2-r-0-0"}, s.names())
	assert.Equal(t, []string{revision, revision}, []string{s.status().Revision, s.status().CurrentRevision})
}

func TestLostPodDoesNotWaitForItsGroupsTurn(t *testing.T) {
	s := routers(t)
	s.replicas(2)
	s.passes(2)
	assert.True(t, s.groups()[2].BeingScaled)
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-1-r-0-0"}}))
	s.passes(2)
	assert.Contains(t, s.names(), "llama-1-r-0-0")
	assert.Contains(t, s.names(), "llama-1-r-1-0", "a group that does not run loses nothing")
	assert.NotContains(t, s.names(), "llama-0-r-1-0")
	assert.True(t, s.groups()[1].Grown)
	for _, name := range []string{"llama-1-r-0-0", "llama-1-r-1-0"} {
		s.become(name, corev1.ConditionTrue)
	}
	s.passes(1)
	assert.False(t, s.groups()[1].Grown)
}

func TestReplicasGoByReadinessCostAndOrdinal(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(1)) })
	s.replicas(4)
	s.passes(3)
	s.allReady()
	s.passes(1)
	s.become("llama-0-r-1-0", corev1.ConditionFalse)
	s.cost("llama-0-r-0-0", "-5")
	for _, want := range [][]string{
		{"llama-0-r-0-0", "llama-0-r-2-0", "llama-0-r-3-0"}, // the unready one went
		{"llama-0-r-2-0", "llama-0-r-3-0"},                  // the cheapest one
		{"llama-0-r-2-0"},                                   // the highest one
	} {
		s.replicas(int32(len(want)))
		s.passes(3)
		require.Equal(t, want, s.names())
		require.Equal(t, v1alpha1.GroupRunning, s.groups()[0].State)
	}
	s.replicas(2)
	s.passes(3)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-0-r-2-0"}, s.names(), "a new one gets the lowest number")
	serving := &v1alpha1.ModelServing{}
	require.True(t, s.read("llama", serving))
	var pods corev1.PodList
	require.NoError(t, s.api.List(t.Context(), &pods))
	wanted := WantedGroups(serving, nil, pods.Items)[0].Replicas
	require.Len(t, wanted, 2)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-0-r-2-0"}, []string{wanted[0].Pods[0], wanted[1].Pods[0]}, "package gang sees the same")
}

func TestReplicaThatBecomesReadyWhileItIsDeletedStays(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(1)) })
	s.replicas(2)
	s.passes(3)
	s.become("llama-0-r-1-0", corev1.ConditionTrue)
	s.passes(1)
	s.become("llama-0-r-0-0", corev1.ConditionFalse)
	s.replicas(1)
	s.before = func(o client.Object) { // as the kubelet may between a pass's reads and its writes
		s.before = nil
		s.become(o.GetName(), corev1.ConditionTrue)
	}
	result := s.passes(1)
	assert.Equal(t, conflictPause, result.RequeueAfter)
	s.passes(2)
	assert.Equal(t, []string{"llama-0-r-0-0"}, s.names(), "both are ready, so the highest goes")
}

func TestNoOtherReplicaIsChosenBeforeTheCacheShowsTheDeletion(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Replicas = new(int32(1)) })
	s.replicas(3)
	s.passes(3)
	s.allReady()
	s.passes(1)
	s.keep = true // the cache goes on to show what was deleted
	s.replicas(2)
	s.passes(1)
	s.become("llama-0-r-0-0", corev1.ConditionFalse)
	s.writes = nil
	s.passes(2)
	assert.Equal(t, []string{"delete Pod llama-0-r-2-0", "delete Pod llama-0-r-2-0"}, s.writes)
}

func TestNoPassIsMadeByAnOlderStatus(t *testing.T) {
	s := routers(t)
	var before v1alpha1.ModelServing
	require.True(t, s.read("llama", &before))
	s.c.noteTold(client.ObjectKeyFromObject(&before), before.ResourceVersion)
	s.replicas(2)
	s.passes(1)
	assert.Len(t, s.names(), 4, "it has changed since")
	require.True(t, s.read("llama", &before))
	s.c.noteTold(client.ObjectKeyFromObject(&before), before.ResourceVersion)
	s.allReady()
	assert.Equal(t, conflictPause, s.passes(1).RequeueAfter)
	assert.True(t, s.groups()[2].BeingScaled)
}

// A pass that restarts something writes the status before, and again if one of its writes is refused.
func TestPassThatWroteTheStatusTwiceIsFollowedByNoneByTheOldest(t *testing.T) {
	s := routers(t)
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	for _, version := range []string{"before", "between"} {
		s.c.noteTold(client.ObjectKeyFromObject(&serving), version)
	}
	for _, version := range []string{"before", "between"} {
		serving.ResourceVersion = version
		assert.True(t, s.c.isStale(&serving), version)
	}
	serving.ResourceVersion = "after"
	assert.False(t, s.c.isStale(&serving))
}

func TestOldGroupKeepsItsNumberThoughItsStatusIsLost(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate, m.Spec.Template.Roles[0].Replicas = router("b"), new(int32(2))
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(2))
	})
	var serving v1alpha1.ModelServing
	require.True(t, s.read("llama", &serving))
	serving.Status.Groups = nil
	require.NoError(t, s.api.Status().Update(t.Context(), &serving))
	s.passes(4)
	assert.Equal(t, []string{"llama-0-r-0-0", "llama-1-r-0-0", "llama-2-r-0-0", "llama-2-r-1-0"}, s.names())
}

func (s *site) scaler() (sc *v1alpha1.RoleScaler, found bool) {
	s.t.Helper()
	sc = &v1alpha1.RoleScaler{}
	return sc, s.read("llama-r", sc)
}

func (s *site) scaleTo(n int32) {
	s.t.Helper()
	sc, found := s.scaler()
	require.True(s.t, found)
	sc.Spec.Replicas = n
	require.NoError(s.t, s.api.Update(s.t.Context(), sc))
}

// settle makes passes, and all Pods ready, until nothing changes any more.
func (s *site) settle() {
	s.t.Helper()
	for again := true; again; {
		before := s.version()
		s.passes(1)
		s.allReady()
		again = before != s.version()
	}
}

// version returns something that changes with each write that counts.
func (s *site) version() string {
	s.t.Helper()
	status, err := json.Marshal(s.status())
	require.NoError(s.t, err)
	return fmt.Sprint(len(s.writes), string(status))
}

func external(m *v1alpha1.ModelServing) {
	m.Spec.Template.Roles[0].Scaling = &v1alpha1.RoleScaling{Mode: v1alpha1.ScalingExternal}
}

func TestNumberOfARoleScalerOutlivesRollouts(t *testing.T) {
	s := routers(t)
	revision := s.status().Revision
	s.change(external)
	s.settle()
	sc, found := s.scaler()
	require.True(t, found)
	assert.Equal(t, v1alpha1.RoleScalerSpec{Replicas: 1}, sc.Spec)
	assert.Equal(t, v1alpha1.RoleScalerStatus{Replicas: 1, Selector: "modelserving.hotseat.dev/entry=true,modelserving.hotseat.dev/group-name=llama-0,modelserving.hotseat.dev/name=llama,modelserving.hotseat.dev/role=r"}, sc.Status)
	assert.Equal(t, types.UID("s"), podmeta.ServingOf(sc).UID)
	assert.Equal(t, revision, s.status().Revision, "the mode changes no Pod")
	assert.Equal(t, v1alpha1.ReasonAsAsked, meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionScalingLimited).Reason)

	s.scaleTo(3)
	s.settle()
	assert.Len(t, s.names(), 9)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].EntryTemplate = router("b") })
	s.settle()
	assert.Len(t, s.names(), 9)
	for _, image := range s.images() {
		assert.Equal(t, "b", image)
	}
	sc, _ = s.scaler()
	assert.EqualValues(t, 3, sc.Status.Replicas)
	s.replicas(2)
	s.settle()
	assert.Len(t, s.names(), 9, "that is only the first number")

	require.NoError(t, s.api.Delete(t.Context(), sc))
	s.settle()
	assert.Len(t, s.names(), 6, "it is created again with that number")
	s.scaleTo(1)
	s.settle()
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].Scaling.Mode = "Static" })
	s.settle()
	_, found = s.scaler()
	assert.False(t, found)
	assert.Len(t, s.names(), 6)
	assert.Nil(t, meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionScalingLimited))
}

func TestNumberOfARoleStaysUntilTheCacheShowsItsRoleScaler(t *testing.T) {
	s := routers(t)
	s.change(external)
	s.settle()
	sc, found := s.scaler()
	require.True(t, found)
	w := &World{Serving: &v1alpha1.ModelServing{}, Scalers: []*Scaler{{Role: "r", Wanted: true, Held: Held[*v1alpha1.RoleScaler]{Unheard: true}}}}
	require.True(t, s.read("llama", w.Serving))
	w.countReplicas()
	of := &plan{revision: w.Revision, template: &w.Serving.Spec.Template}
	assert.Equal(t, map[string]int{"r": 7}, w.wants(of, map[string]int{"r": 7}, false))
	w.Scalers[0].Is = sc
	w.countReplicas()
	assert.Equal(t, map[string]int{"r": 1}, w.wants(of, map[string]int{"r": 7}, false))
}

func TestKeptGroupFollowsItsRoleScaler(t *testing.T) {
	s := routers(t)
	s.change(external)
	s.settle()
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Template.Roles[0].EntryTemplate = router("b")
		m.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1))
	})
	s.settle()
	s.scaleTo(2)
	s.settle()
	assert.Equal(t, map[string]string{
		"llama-0-r-0-0": "a", "llama-0-r-1-0": "a", "llama-1-r-0-0": "b", "llama-1-r-1-0": "b", "llama-2-r-0-0": "b", "llama-2-r-1-0": "b",
	}, s.images())
}

func TestRoleScalerOfAnotherOwnerIsLeftAlone(t *testing.T) {
	theirs := &v1alpha1.RoleScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama-prefill", UID: "theirs"}, Spec: v1alpha1.RoleScalerSpec{Replicas: 7}}
	s := newSite(t, external, nil, theirs)
	assert.Equal(t, takenPause, s.passes(2).RequeueAfter)
	limited := meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionScalingLimited)
	require.NotNil(t, limited)
	assert.Equal(t, []string{"True", v1alpha1.ReasonNameTaken}, []string{string(limited.Status), limited.Reason})
	assert.Len(t, s.names(), 1)
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[0].Scaling = nil })
	s.passes(2)
	require.True(t, s.read("llama-prefill", &v1alpha1.RoleScaler{}))
}

func TestRatioConstraintHoldsARoleBackAndSaysSo(t *testing.T) {
	s := routers(t)
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.Replicas = new(int32(1))
		m.Spec.Template.Roles = append(m.Spec.Template.Roles, v1alpha1.ServingRole{Name: "prefill", Replicas: new(int32(1)), EntryTemplate: router("a")})
		m.Spec.Template.RatioConstraint = &v1alpha1.RatioConstraint{NumeratorRole: "prefill", DenominatorRole: "r", Numerator: 1, Denominator: 2}
		external(m)
	})
	s.settle()
	s.scaleTo(5)
	s.settle()
	assert.Equal(t, []string{"llama-0-prefill-0-0", "llama-0-r-0-0", "llama-0-r-1-0"}, s.names())
	limited := meta.FindStatusCondition(s.status().Conditions, v1alpha1.ConditionScalingLimited)
	require.NotNil(t, limited)
	assert.Equal(t, []string{"True", v1alpha1.ReasonRatioConstraint}, []string{string(limited.Status), limited.Reason})
	assert.Contains(t, limited.Message, "role r gets 2 replicas, and not 5, as there are 1 of role prefill")
	s.change(func(m *v1alpha1.ModelServing) { m.Spec.Template.Roles[1].Replicas = new(int32(3)) })
	s.settle()
	assert.Len(t, s.names(), 7, "two of prefill, since there are 5 of r; and these")
}

func TestTheTableOfRoleScalersHasTheRowsOfTheCode(t *testing.T) {
	text, err := os.ReadFile("../../../../spec/roles.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "## RoleScalers\n")
	var written, coded []string
	for _, line := range regexp.MustCompile(`(?m)^\| (\S[^|]*) \|.*\|$`).FindAllStringSubmatch(strings.Split(section, "\n## ")[0], -1) {
		if line[1] != "row" {
			written = append(written, line[1])
		}
	}
	for _, r := range scalers {
		coded = append(coded, r.row)
	}
	assert.Equal(t, coded, written)
}
