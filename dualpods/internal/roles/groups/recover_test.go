package groups

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// recovers returns a world whose group has that policy and that record of restarts.
func recovers(policy v1alpha1.RecoveryPolicy, record v1alpha1.ServingGroupRestart) *World {
	w := world()
	w.Now, w.Serving.Spec.RecoveryPolicy = now, policy
	w.Serving.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: "llama-0", Restart: &record}}
	w.member().Pod.Is.Annotations[podmeta.AnnotationOnExit] = w.onExit()
	w.member().Pod.Is.Spec.NodeName = "node-1"
	return w
}

func ran() v1alpha1.ServingGroupRestart {
	return v1alpha1.ServingGroupRestart{Ran: []string{"prefill-0"}}
}

// podRow returns the row of the table of Pods for the entry, and what the status says of the group.
func podRow(t *testing.T, w *World) (*Step, v1alpha1.ServingGroupStatus) {
	t.Helper()
	steps := Decide(w)
	groups := groupsOf(w, steps)
	require.Len(t, groups, 1)
	at := slices.IndexFunc(steps, func(s *Step) bool {
		return slices.ContainsFunc(pods, func(r rule) bool { return r.row == s.Row })
	})
	return steps[at], groups[0]
}

func bindEntry(w *World, state string) *podmeta.Binding {
	record := &podmeta.Binding{Instance: "i", RequesterUID: "p", Attempt: 1}
	w.member().Bound = &Bound{Launcher: launcherPod(), Record: record, Known: true, Instance: &launcherapi.Instance{InstanceID: "i", State: state}}
	return record
}

func TestPodsOfARecreatedGroupAreDeletedAndThenCreated(t *testing.T) {
	leaving := v1alpha1.ServingGroupRestart{Whole: true, Leaving: []types.UID{"p"}, Restarts: 1, Last: &metav1.Time{Time: now}}
	w := recovers(v1alpha1.RecoverGroup, leaving)
	s, g := podRow(t, w)
	assert.Equal(t, []string{"Pod restarted", string(Delete)}, []string{s.Row, string(s.Do)})
	assert.Equal(t, []string{string(v1alpha1.GroupProgressing), v1alpha1.ReasonRestarting}, []string{string(g.State), g.Reason})
	assert.True(t, g.Restart.Whole)

	deleted(w.member().Pod.Is)
	s, _ = podRow(t, w)
	assert.Equal(t, "Pod being deleted", s.Row)

	w.lacks()
	s, g = podRow(t, w)
	assert.Equal(t, "create Pod", s.Row)
	assert.Empty(t, g.Restart.Leaving)
	assert.EqualValues(t, 1, g.Restart.Restarts)

	w = recovers(v1alpha1.RecoverGroup, leaving)
	w.member().Pod.Is.UID = "later"
	s, _ = podRow(t, w)
	assert.Equal(t, "Pod ready", s.Row, "a later Pod stays")
}

func TestNoPodIsCreatedWhileOthersOfItsGroupLeave(t *testing.T) {
	w := recovers(v1alpha1.RecoverGroup, v1alpha1.ServingGroupRestart{Whole: true, Leaving: []types.UID{"p"}})
	second := *w.member()
	second.replica, second.Pod = 1, Held[*corev1.Pod]{}
	w.Serving.Spec.Template.Roles[0].Replicas = new(int32(2))
	w.Members = append(w.Members, &second)
	d := w.recoveries()
	require.NotEmpty(t, d)
	assert.True(t, w.isHeld(&second))
	w.Serving.Status.Groups[0].Restart.Whole = false
	w.recoveries()
	assert.False(t, w.isHeld(&second), "only the replica of a role is being recreated")
}

func TestOverdueServerIsStartedAgainInPlace(t *testing.T) {
	overdue := ran()
	overdue.NotReady = []v1alpha1.NotReadyPod{{UID: "p", Since: metav1.Time{Time: now.Add(-time.Minute)}}}
	w := recovers("", overdue)
	w.member().Pod.Is.Status.Conditions = nil
	bindEntry(w, "awake")
	steps := Decide(w)
	assert.Equal(t, []any{"restart in place", Remove, w.Members}, []any{steps[0].Row, steps[0].Do, steps[0].Ranks})

	w.member().Bound.Launcher.Annotations = map[string]string{}
	require.NoError(t, podmeta.Failures{RequesterUID: "p", Count: 1, Last: now}.Put(w.member().Bound.Launcher, "i"))
	s, g := podRow(t, w)
	assert.Equal(t, "Pod restarted", s.Row, "it was started again before")
	assert.Equal(t, []types.UID{"p"}, g.Restart.Leaving)
}

func TestServerThatLoadsAgainIsLeftAlone(t *testing.T) {
	overdue := ran()
	overdue.NotReady = []v1alpha1.NotReadyPod{{UID: "p", Since: metav1.Time{Time: now.Add(-time.Minute)}}}
	w := recovers("", overdue)
	w.member().Pod.Is.Status.Conditions = nil
	record := bindEntry(w, "starting")
	s, _ := podRow(t, w)
	assert.Equal(t, "Pod not ready", s.Row)
	record.Failures = 1
	s, _ = podRow(t, w)
	assert.Equal(t, "Pod restarted", s.Row, "to start it again has failed")
}

func TestPolicyNoneLeavesWhatHasEnded(t *testing.T) {
	w := recovers(v1alpha1.RecoverNone, ran())
	w.member().Pod.Is.Status.Phase = corev1.PodFailed
	s, g := podRow(t, w)
	assert.Equal(t, []string{"Pod ended, kept", ""}, []string{s.Row, string(s.Do)})
	assert.Equal(t, []string{string(v1alpha1.GroupFailed), v1alpha1.ReasonNotRestarted}, []string{string(g.State), g.Reason})
	assert.Nil(t, g.Restart)

	w = recovers(v1alpha1.RecoverNone, ran())
	w.member().Pod.Is.Status.Conditions = nil
	record := bindEntry(w, "failed")
	s, _ = podRow(t, w)
	assert.Equal(t, "Pod not ready", s.Row)
	record.Kept = "is failed (exit code 1)"
	s, g = podRow(t, w)
	assert.Equal(t, "server ended, kept", s.Row)
	assert.Contains(t, g.Message, "the server of Pod llama-0-prefill-0-0 is failed (exit code 1), and nothing restarts it")
}

func TestFailedGroupKeepsPodsThatHaveEnded(t *testing.T) {
	failed := ran()
	failed.Restarts, failed.Last = 5, &metav1.Time{Time: now}
	w := recovers(v1alpha1.RecoverGroup, failed)
	w.member().Pod.Is.Status.Phase = corev1.PodFailed
	s, g := podRow(t, w)
	assert.Equal(t, "Pod ended, kept", s.Row)
	assert.Equal(t, []string{string(v1alpha1.GroupFailed), v1alpha1.ReasonTooManyRestarts}, []string{string(g.State), g.Reason})
}

func TestGroupThatBacksOffHasNotFailed(t *testing.T) {
	backsOff := ran()
	backsOff.Restarts, backsOff.Last = 1, &metav1.Time{Time: now}
	w := recovers(v1alpha1.RecoverGroup, backsOff)
	w.member().Pod.Is.Status.Phase = corev1.PodFailed
	s, g := podRow(t, w)
	assert.Equal(t, []string{"Pod ended, kept", v1alpha1.ReasonRestarting}, []string{s.Row, s.Reason})
	assert.NotContains(t, s.Why, "delete it", "no Pod takes its place before the pause is over")
	assert.Equal(t, []string{string(v1alpha1.GroupProgressing), v1alpha1.ReasonRestarting}, []string{string(g.State), g.Reason})
}

func TestPolicyIsPutOnRequestersThatAreThere(t *testing.T) {
	for policy, want := range map[v1alpha1.RecoveryPolicy]string{"": "Restart", v1alpha1.RecoverRole: "Restart", v1alpha1.RecoverGroup: "Delete", v1alpha1.RecoverNone: "Keep"} {
		w := recovers(policy, ran())
		assert.Equal(t, want, w.newPod(w.member().place).Annotations[podmeta.AnnotationOnExit])
		assert.Empty(t, w.policies())
		w.member().Pod.Is.Annotations[podmeta.AnnotationOnExit] = "other"
		steps := w.policies()
		require.Len(t, steps, 1)
		assert.Equal(t, Annotate, steps[0].Do)
		assert.Equal(t, want, steps[0].Object.GetAnnotations()[podmeta.AnnotationOnExit])
	}
	w := recovers("", ran())
	w.Serving.Spec.Template.Roles[0].EntryTemplate.Raw = []byte(plainEntry)
	w.planned("requester")
	assert.NotContains(t, w.newPod(w.member().place).Annotations, podmeta.AnnotationOnExit)
}

func TestGroupThatHoldsNodesAndLacksOthersStalls(t *testing.T) {
	w := recovers("", ran())
	assert.False(t, w.lacksNodes(w.Members))
	w.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{}
	assert.False(t, w.lacksNodes(w.Members))
	w.groups[0].template.Roles[0].Replicas = new(int32(2))
	second := &Member{place: w.member().place, Wanted: true}
	second.replica = 1
	w.Members = append(w.Members, second)
	assert.True(t, w.lacksNodes(w.Members))
	w.Serving.Status.Groups[0].Gang = &v1alpha1.ServingGroupGang{State: v1alpha1.GangPlaced}
	assert.True(t, w.observedRestarts(0, w.Members).Lacks)
	w.Serving.Status.Groups[0].Grown = true
	assert.False(t, w.observedRestarts(0, w.Members).Lacks, "the new replica has never had a node")
	w.Serving.Spec.Template.GangPolicy.MinRoleReplicas = map[string]int32{"prefill": 1}
	assert.False(t, w.lacksNodes(w.Members), "the others are not counted")
	w.lacks()
	assert.False(t, w.lacksNodes(w.Members), "it holds nothing")
}

func TestGraceOfRestartsIsNoPartOfARevision(t *testing.T) {
	a, b := llama(), llama()
	b.Spec.Template.RestartGracePeriodSeconds = new(int64(5))
	assert.Equal(t, content(&a.Spec.Template), content(&b.Spec.Template))
}

// Below, the controller runs against an API server.

func (s *site) restart() *v1alpha1.ServingGroupRestart { return s.groups()[0].Restart }

// kubeletSays has the kubelet say whether a Pod is ready, from now on.
func (s *site) kubeletSays(name string, ready corev1.ConditionStatus) {
	s.t.Helper()
	var pod corev1.Pod
	require.True(s.t, s.read(name, &pod))
	pod.Spec.NodeName = "node-1"
	require.NoError(s.t, s.api.Update(s.t.Context(), &pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Time{Time: s.now}}}
	require.NoError(s.t, s.api.Status().Update(s.t.Context(), &pod))
}

// again has another process go on: it has no memory.
func (s *site) again() { s.c = New(s.c.opts) }

// newPair makes a site whose group has two entries that run.
func newPair(t *testing.T, policy v1alpha1.RecoveryPolicy) *site {
	t.Helper()
	s := newSite(t, func(m *v1alpha1.ModelServing) {
		role := &m.Spec.Template.Roles[0]
		m.Spec.RecoveryPolicy, role.Replicas, role.EntryTemplate.Raw = policy, new(int32(2)), []byte(plainEntry)
	}, nil)
	s.passes(1)
	s.kubeletSays(entry, corev1.ConditionTrue)
	s.kubeletSays(second, corev1.ConditionTrue)
	s.passes(2)
	require.Equal(t, []string{"prefill-0", "prefill-1"}, s.restart().Ran)
	s.writes = nil
	return s
}

const second = "llama-0-prefill-1-0"

func TestControllerThatIsKilledWaitsTheRestOfTheGrace(t *testing.T) {
	s := newPair(t, "")
	s.kubeletSays(second, corev1.ConditionFalse)
	result := s.passes(1)
	assert.Equal(t, time.Minute, result.RequeueAfter)
	s.now = now.Add(30 * time.Second)
	s.again()
	assert.Equal(t, 30*time.Second, s.passes(1).RequeueAfter)
	s.now = now.Add(59 * time.Second)
	s.passes(2)
	assert.Empty(t, s.writes)
	s.now = now.Add(time.Minute)
	s.passes(1)
	assert.Equal(t, []string{"delete Pod " + second}, s.writes)
	s.told("the Pods of replica prefill-1 of group llama-0 are recreated: Pod " + second + " was ready, and has not been for 1m0s")
	s.writes = nil
	s.passes(2)
	assert.Equal(t, []string{"create Pod " + second}, s.writes)
	assert.Equal(t, []string{"prefill-0"}, s.restart().Ran, "another Pod starts anew")
}

func TestPodThatIsReadyInTimeIsLeftAlone(t *testing.T) {
	s := newPair(t, v1alpha1.RecoverGroup)
	s.kubeletSays(second, corev1.ConditionFalse)
	s.passes(1)
	s.now = now.Add(59 * time.Second)
	s.kubeletSays(second, corev1.ConditionTrue)
	s.passes(1)
	s.now = now.Add(time.Hour)
	s.passes(2)
	assert.Empty(t, s.writes)
	assert.Equal(t, &v1alpha1.ServingGroupRestart{Ran: []string{"prefill-0", "prefill-1"}}, s.restart())
	assert.Equal(t, v1alpha1.GroupRunning, s.groups()[0].State)
}

func TestGroupIsRecreatedOnceForAllThatItHasLost(t *testing.T) {
	s := newPair(t, v1alpha1.RecoverGroup)
	var pod corev1.Pod
	for _, name := range []string{entry, second} {
		require.True(t, s.read(name, &pod))
		pod.Finalizers = []string{"example.com/hold"}
		require.NoError(t, s.api.Update(t.Context(), &pod))
	}
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: second}}))
	s.writes = nil
	s.passes(1)
	assert.Equal(t, []string{"delete Pod " + entry}, s.writes)
	s.told("all Pods of group llama-0 are recreated: a Pod of prefill-1 is gone, or is being deleted")
	s.writes = nil
	s.again()
	s.passes(2)
	require.True(t, s.read(second, &pod))
	pod.Finalizers = nil
	require.NoError(t, s.api.Update(t.Context(), &pod))
	s.passes(2)
	assert.Empty(t, s.writes, "nothing is created before the other Pod is gone")
	assert.Equal(t, []string{string(v1alpha1.GroupProgressing), v1alpha1.ReasonRestarting}, []string{string(s.groups()[0].State), s.groups()[0].Reason})
	require.True(t, s.read(entry, &pod))
	pod.Finalizers = nil
	require.NoError(t, s.api.Update(t.Context(), &pod))
	s.passes(2)
	assert.Equal(t, []string{"create Pod " + entry, "create Pod " + second}, s.writes)
	assert.EqualValues(t, 1, s.restart().Restarts)
	assert.Empty(t, s.events.Events)
}

func TestRestartIsRecordedBeforeAnythingIsDeleted(t *testing.T) {
	s := newPair(t, v1alpha1.RecoverGroup)
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: second}}))
	s.writes = nil
	api := s.c.opts.API
	s.c.opts.API = noStatus{api}
	_, err := s.pass()
	require.ErrorContains(t, err, "no answer")
	assert.Empty(t, s.writes)
	s.c.opts.API = api
	s.passes(1)
	assert.Equal(t, []string{"delete Pod " + entry}, s.writes)
}

// noStatus is an API server that takes no status.
type noStatus struct{ client.Client }

func (noStatus) Status() client.SubResourceWriter { return noStatusWriter{} }

type noStatusWriter struct{ client.SubResourceWriter }

func (noStatusWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errors.New("no answer")
}

func TestRanksAreStoppedThoughTheStatusCannotBeWritten(t *testing.T) {
	s, y := newYard(t)
	s.kubeletSays(entry, corev1.ConditionTrue)
	s.kubeletSays(worker, corev1.ConditionTrue)
	s.passes(1)
	y.swaps["first"] = dualpods.RankSwap{ID: "swap-1", Phase: launcherapi.PhaseHealthy}
	require.NoError(t, s.api.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second"}}))
	s.kubeletSays(entry, corev1.ConditionFalse) // its group stalls now
	y.orders, s.c.opts.API = nil, noStatus{s.api}
	_, err := s.pass()
	require.ErrorContains(t, err, "no answer")
	assert.Equal(t, []string{"first: undo swap-1"}, y.orders)
}

func TestGroupThatNeverRunsIsRecreatedAndThenFailed(t *testing.T) {
	s := newPair(t, "")
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.MaxGroupRestarts, m.Spec.ProgressingTimeoutSeconds = new(int32(1)), new(int64(20))
		m.Spec.Template.RestartGracePeriodSeconds = new(int64(1000))
	})
	fails := func() {
		s.kubeletSays(entry, corev1.ConditionFalse)
		s.kubeletSays(second, corev1.ConditionFalse)
		s.passes(1)
		s.now = s.now.Add(20 * time.Second)
		s.writes = nil
		s.passes(1)
	}
	fails()
	assert.Equal(t, []string{"delete Pod " + entry, "delete Pod " + second}, s.writes)
	s.passes(2)
	fails()
	assert.Empty(t, s.writes)
	g := s.groups()[0]
	assert.Equal(t, []string{string(v1alpha1.GroupFailed), v1alpha1.ReasonTooManyRestarts}, []string{string(g.State), g.Reason})
	assert.Contains(t, g.Message, "group llama-0 has not been ready for 20s: Pod "+entry+" is not; the group was recreated 1 times, and is tried again at")
	s.now = now.Add(2 * time.Hour)
	s.passes(1)
	assert.Equal(t, []string{"delete Pod " + entry, "delete Pod " + second}, s.writes)
}

func TestReplicaThatNeverGetsReadyIsRecreatedAlone(t *testing.T) {
	s := newPair(t, "")
	s.change(func(m *v1alpha1.ModelServing) {
		m.Spec.MaxGroupRestarts, m.Spec.ProgressingTimeoutSeconds = new(int32(0)), new(int64(20))
	})
	for range 3 {
		s.kubeletSays(entry, corev1.ConditionTrue)
		s.kubeletSays(second, corev1.ConditionFalse)
		s.passes(1)
		s.now, s.writes = s.now.Add(20*time.Second), nil
		s.passes(3)
		assert.Equal(t, []string{"delete Pod " + second, "create Pod " + second}, s.writes)
		s.told("Restarting the Pods of replica prefill-1 of group llama-0 are recreated: group llama-0 serves, but has not been ready for 20s: Pod " + second + " is not")
		assert.Equal(t, v1alpha1.GroupProgressing, s.groups()[0].State)
	}
}
