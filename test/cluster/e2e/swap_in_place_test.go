//go:build cluster

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// pairNames are the Pods of the group that is changed in place.
var pairNames = []string{"llama-0-prefill-0-0", "llama-0-decode-0-0"}

// pair returns the roles of a group of two servers of org/MODEL. The decode server has more arguments.
func (s *site) pair(model string, change func(*corev1.PodTemplateSpec), decodeArgs ...string) []v1alpha1.ServingRole {
	s.t.Helper()
	role := func(name string, args ...string) v1alpha1.ServingRole {
		template := server{app: "pair", patch: server{app: model, args: args}.serverPatch(s.t)}.template(s.t)
		if change != nil {
			change(&template)
		}
		return v1alpha1.ServingRole{Name: name, EntryTemplate: raw(s.t, template)}
	}
	return []v1alpha1.ServingRole{role("prefill"), role("decode", decodeArgs...)}
}

// rankNames are the ranks of a server that is changed in place, the entry first.
var rankNames = []string{"llama-0-server-0-0", "llama-0-server-0-1"}

// twoRanks returns the role of a server of org/MODEL whose ranks run on two nodes. The worker has more
// arguments.
func (s *site) twoRanks(model string, workerArgs ...string) []v1alpha1.ServingRole {
	s.t.Helper()
	template := func(node int, args ...string) *runtime.RawExtension {
		patch := server{app: model, args: append([]string{"--tensor-parallel-size=2"}, args...)}.serverPatch(s.t)
		return raw(s.t, server{app: "ranks", node: node, patch: patch}.template(s.t))
	}
	return []v1alpha1.ServingRole{{Name: "server", WorkerReplicas: new(int32(1)), EntryTemplate: template(1), WorkerTemplate: template(2, workerArgs...)}}
}

// stateOfServers is what a change in place leaves as it is, and what it changes.
type stateOfServers struct {
	uids    []types.UID
	gpus    [][]string
	pids    []int
	states  []string // of the instances
	asleep  []bool   // whether the launcher has another instance that sleeps on the same GPUs
	starts  []string // that ranks take part in
	answers []string // of all but workers
}

func (s *site) stateOfPair(model string) stateOfServers { return s.stateOf(model, pairNames) }

func (s *site) stateOf(model string, names []string) (all stateOfServers) {
	s.t.Helper()
	for _, name := range names {
		pod := s.pod(name)
		on, instance := s.boundTo(name)
		sleeps := false
		list, err := s.launcher(on.Name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, other := range list.Instances {
			sleeps = sleeps || other.State == string(launcher.Sleeping) && slices.Equal(other.GPUUUIDs, instance.GPUUUIDs)
		}
		all.uids, all.gpus, all.pids = append(all.uids, pod.UID), append(all.gpus, instance.GPUUUIDs), append(all.pids, instance.PID)
		all.asleep, all.states = append(all.asleep, sleeps), append(all.states, instance.State)
		if instance.Rank != nil {
			all.starts = append(all.starts, instance.Rank.Group)
		}
		if instance.Port == 0 { // a worker
			continue
		}
		answered, err := s.ask(pod.Status.PodIP+":8000", model)
		require.NoError(s.t, err, name)
		all.answers = append(all.answers, answered)
	}
	return all
}

// rolledOut waits until the groups of llama run by their present template, and returns how long that took.
func (s *site) rolledOut() time.Duration {
	s.t.Helper()
	began := time.Now()
	s.eventually("the template is rolled out", func() bool {
		m := s.modelServing("llama")
		return m.Status.ObservedGeneration == m.Generation && m.Status.CurrentRevision == m.Status.Revision && m.Status.ReadyReplicas == 1
	})
	return time.Since(began)
}

func TestModelsOfAGroupAreChangedInPlace(t *testing.T) {
	s := newPool(t, nil)
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.UpdateMode = v1alpha1.UpdateInPlace
	serving.Spec.Template.Roles = s.pair("one", nil)
	require.NoError(t, s.api.Create(t.Context(), serving))
	s.runs("llama", 1)
	first := s.stateOfPair("org/one")

	// Another model: the same Pods with the same GPUs, and the old model sleeps.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.pair("two", nil) })
	t.Logf("a change in place took %s", s.rolledOut())
	second := s.stateOfPair("org/two")
	assert.Equal(t, first.uids, second.uids)
	assert.Equal(t, first.gpus, second.gpus)
	assert.Equal(t, []bool{true, true}, second.asleep)
	assert.Equal(t, []string{"org/two", "org/two"}, second.answers)

	// A label alone touches no engine.
	labelled := func(p *corev1.PodTemplateSpec) { p.Labels["tier"] = "gold" }
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.pair("two", labelled) })
	s.rolledOut()
	assert.Equal(t, second, s.stateOfPair("org/two"))
	for _, name := range pairNames {
		assert.Equal(t, "gold", s.pod(name).Labels["tier"], name)
	}

	// The new model of one server does not start: both have the old one, in the same engines.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Template.Roles = s.pair("three", labelled, "--sim-oom")
	})
	change := s.isUndone()
	assert.Equal(t, second, s.stateOfPair("org/two"))
	assert.Contains(t, change.Message, "the new model of Pod llama-0-decode-0-0 failed")
	s.warned(v1alpha1.ReasonChangeFailed)

	// A template that is mended is tried at once.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.pair("three", labelled) })
	s.rolledOut()
	third := s.stateOfPair("org/three")
	assert.Equal(t, first.uids, third.uids)

	// Another Pod cannot be had in place.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) {
		spec.Template.Roles = s.pair("three", func(p *corev1.PodTemplateSpec) {
			labelled(p)
			p.Spec.TerminationGracePeriodSeconds = new(int64(20))
		})
	})
	t.Logf("the same with new Pods took %s", s.rolledOut())
	last := s.stateOfPair("org/three")
	assert.NotEqual(t, third.uids[0], last.uids[0])
	assert.NotEqual(t, third.uids[1], last.uids[1])
	s.warned(v1alpha1.ReasonNotInPlace)
}

// isUndone waits until a change of the group was undone, and the group runs.
func (s *site) isUndone() *v1alpha1.ServingGroupChange {
	s.t.Helper()
	var change *v1alpha1.ServingGroupChange
	s.eventually("the change is undone", func() bool {
		groups := s.modelServing("llama").Status.Groups
		if len(groups) != 1 || groups[0].State != v1alpha1.GroupRunning {
			return false
		}
		change = groups[0].Change
		return change != nil && change.State == v1alpha1.ChangeUndone
	})
	return change
}

// runTwoRanks makes the ModelServing llama, one server of two ranks that is changed in place, and waits until
// it runs.
func (s *site) runTwoRanks() {
	s.t.Helper()
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.UpdateMode, serving.Spec.Template.Roles = v1alpha1.UpdateInPlace, s.twoRanks("one")
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
	s.runs("llama", 1)
}

func TestModelOfAServerOfTwoRanksIsChangedInPlace(t *testing.T) {
	s := newPool(t, nil)
	s.runTwoRanks()
	first := s.stateOf("org/one", rankNames)
	require.Len(t, first.starts, 2)

	// Another model: the same Pods with the same GPUs, and the old model sleeps on both launchers.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.twoRanks("two") })
	t.Logf("a change of two ranks in place took %s", s.rolledOut())
	second := s.stateOf("org/two", rankNames)
	assert.Equal(t, first.uids, second.uids)
	assert.Equal(t, first.gpus, second.gpus)
	assert.Equal(t, []bool{true, true}, second.asleep)
	assert.Equal(t, []string{"org/two"}, second.answers)
	assert.Equal(t, second.starts[0], second.starts[1])
	assert.NotEqual(t, first.starts[0], second.starts[0])

	// Back to the first model, whose ranks are woken together.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.twoRanks("one") })
	t.Logf("a change back took %s", s.rolledOut())
	third := s.stateOf("org/one", rankNames)
	assert.Equal(t, first.uids, third.uids)
	assert.Equal(t, first.pids, third.pids)
	assert.Equal(t, first.starts, third.starts)
	assert.Equal(t, []bool{true, true}, third.asleep)
}

func TestWorkerThatFailsLeavesTheOldModelAwakeEverywhere(t *testing.T) {
	s := newPool(t, nil)
	s.runTwoRanks()
	before := s.stateOf("org/one", rankNames)
	assert.Equal(t, []string{"awake", "awake"}, before.states)

	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.twoRanks("two", "--sim-oom") })
	change := s.isUndone()
	assert.Regexp(t, "the new model of Pod llama-0-server-0-[01] failed", change.Message) // the entry fails with its worker
	assert.Equal(t, before, s.stateOf("org/one", rankNames))
	s.warned(v1alpha1.ReasonChangeFailed)

	// A template that is mended is tried at once.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = s.twoRanks("two") })
	s.rolledOut()
	after := s.stateOf("org/two", rankNames)
	assert.Equal(t, before.uids, after.uids)
	assert.Equal(t, before.gpus, after.gpus)
	assert.Equal(t, []bool{true, true}, after.asleep)
}

func TestStreamOfAnotherGroupRunsOnWhileOneIsChanged(t *testing.T) {
	s := newPool(t, nil)
	slow := func(model string) []v1alpha1.ServingRole {
		return s.pair(model, nil, "--sim-token-time="+talkPace.String(), fmt.Sprintf("--sim-tokens=%d", talkTokens))
	}
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas, serving.Spec.UpdateMode = new(int32(2)), v1alpha1.UpdateInPlace
	serving.Spec.RolloutStrategy.RollingUpdateConfiguration.Partition = new(intstr.FromInt32(1)) // which keeps llama-0
	serving.Spec.Template.Roles = slow("talker")
	require.NoError(t, s.api.Create(t.Context(), serving))
	s.runs("llama", 2)
	kept := s.pod("llama-0-decode-0-0")
	changed := s.requesters()
	answer := s.listen(kept)
	answer.goesOn()

	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.Template.Roles = slow("other") })
	s.eventually("llama-1 is changed", func() bool {
		status := s.modelServing("llama").Status
		return status.Revision != status.CurrentRevision && status.UpdatedReplicas == 1 && status.ReadyReplicas == 2
	})
	answer.goesOn()
	for _, role := range []string{"prefill", "decode"} {
		name := "llama-1-" + role + "-0-0"
		pod := s.pod(name)
		assert.Equal(t, changed[name].UID, pod.UID, "changed in place")
		answered, err := s.ask(pod.Status.PodIP+":8000", "org/other")
		require.NoError(t, err, name)
		assert.Equal(t, "org/other", answered)
	}
	assert.Equal(t, kept.UID, s.pod(kept.Name).UID)
	answer.goesOn()
}

// warned waits for an Event about the ModelServing llama.
func (s *site) warned(reason string) {
	s.t.Helper()
	s.eventually("an Event with the reason "+reason, func() bool {
		var all eventsv1.EventList
		require.NoError(s.t, s.api.List(s.t.Context(), &all, client.InNamespace(s.ns)))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.Name == "llama" })
	})
}
