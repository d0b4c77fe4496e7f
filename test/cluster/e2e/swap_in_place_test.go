//go:build cluster

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
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

// stateOfPair is what a change in place leaves as it is, and what it changes.
type stateOfPair struct {
	uids    []types.UID
	gpus    [][]string
	pids    []int
	asleep  []bool // whether the launcher has an instance that sleeps on the same GPUs
	answers []string
}

func (s *site) stateOfPair(model string) (all stateOfPair) {
	s.t.Helper()
	for _, name := range pairNames {
		pod := s.pod(name)
		on, instance := s.boundTo(name)
		sleeps := false
		list, err := s.launcher(on.Name).List(s.t.Context())
		require.NoError(s.t, err)
		for _, other := range list.Instances {
			sleeps = sleeps || other.State == string(launcher.Sleeping) && slices.Equal(other.GPUUUIDs, instance.GPUUUIDs)
		}
		answered, err := s.ask(pod.Status.PodIP+":8000", model)
		require.NoError(s.t, err, name)
		all.uids, all.gpus, all.pids = append(all.uids, pod.UID), append(all.gpus, instance.GPUUUIDs), append(all.pids, instance.PID)
		all.asleep, all.answers = append(all.asleep, sleeps), append(all.answers, answered)
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
	s.eventually("the change is undone", func() bool {
		groups := s.modelServing("llama").Status.Groups
		return len(groups) == 1 && groups[0].Change != nil && groups[0].Change.State == v1alpha1.ChangeUndone && groups[0].State == v1alpha1.GroupRunning
	})
	assert.Equal(t, second, s.stateOfPair("org/two"))
	assert.Contains(t, s.modelServing("llama").Status.Groups[0].Change.Message, "the new model of Pod llama-0-decode-0-0 failed")
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

// warned waits for an Event about the ModelServing llama.
func (s *site) warned(reason string) {
	s.t.Helper()
	s.eventually("an Event with the reason "+reason, func() bool {
		var all eventsv1.EventList
		require.NoError(s.t, s.api.List(s.t.Context(), &all, client.InNamespace(s.ns)))
		return slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.Name == "llama" })
	})
}
