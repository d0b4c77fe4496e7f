//go:build cluster && clusterlong

package e2e

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// failing is the requester of the second group whose server ends again and again.
const failing = "llama-1-decode-0-0"

// failingServes waits until all groups run, and the failing requester answers. If its server ends later,
// that counts as an end soon after it had begun to serve.
func (s *site) failingServes() {
	s.t.Helper()
	s.runs("llama", 2)
	s.eventually(failing+" answers", func() bool {
		answered, err := s.ask(s.pod(failing).Status.PodIP+":8000", "org/decode")
		return err == nil && answered == "org/decode"
	})
}

// eventSays waits until an Event of llama has a message.
func (s *site) eventSays(message string) {
	s.t.Helper()
	s.eventually("an Event says: "+message, func() bool { return slices.Contains(s.events("llama"), message) })
}

// endPod has the kubelet end a Pod, which nobody deletes: its deadline has passed.
func (s *site) endPod(name string) {
	s.t.Helper()
	s.kubectl("patch", "pod", name, "--type=merge", "--patch", `{"spec":{"activeDeadlineSeconds":1}}`)
}

// recreates waits until the failing requester is another Pod than before, and serves. whole means that the
// other Pod of its group is another one too; otherwise that one has stayed.
func (s *site) recreates(was [2]types.UID, whole bool) (now [2]types.UID) {
	s.t.Helper()
	s.eventually("Pods are recreated", func() bool {
		now[0], now[1] = s.podsOf(1)
		return now[0] != "" && now[1] != "" && now[1] != was[1] && (!whole || now[0] != was[0])
	})
	s.failingServes()
	prefill, decode := s.podsOf(1)
	assert.Equal(s.t, now, [2]types.UID{prefill, decode}, "each was created once")
	assert.Equal(s.t, !whole, now[0] == was[0])
	return now
}

// TestRestartsOfAReplicaEscalateUntilItsGroupHasFailed has one server of two groups fail: its instance is
// restarted, then its Pod, then its group, as often as maxGroupRestarts says.
func TestRestartsOfAReplicaEscalateUntilItsGroupHasFailed(t *testing.T) {
	s := newPool(t, nil)
	s.twoGroups(v1alpha1.RecoverRole)
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.MaxGroupRestarts = new(int32(1)) })
	s.failingServes()
	s.onExit(podmeta.OnExitRestart)
	var others, now [2]types.UID
	others[0], others[1] = s.podsOf(0)
	now[0], now[1] = s.podsOf(1)
	restarts := func() *v1alpha1.ServingGroupRestart { return s.modelServing("llama").Status.Groups[1].Restart }

	// The instance is started again, for the same Pod.
	launcher, before := s.boundTo(failing)
	s.killServer(failing)
	s.eventually("the server is started again", func() bool {
		after, err := s.launcher(launcher.Name).Get(t.Context(), before.InstanceID)
		return err == nil && after.State == "awake" && after.PID != before.PID
	})
	s.failingServes()
	prefill, decode := s.podsOf(1)
	require.Equal(t, now, [2]types.UID{prefill, decode}, "the Pods stay")

	// It ends again: the Pod of the replica is recreated.
	s.killServer(failing)
	now = s.recreates(now, false)
	s.eventSays("the Pods of replica decode-0 of group llama-1 are recreated: the server of Pod " + failing + " has ended 2 times soon after it served")

	// It ends once more: all Pods of the group are recreated.
	s.killServer(failing)
	now = s.recreates(now, true)
	s.eventSays("all Pods of group llama-1 are recreated: the server of Pod " + failing + " has ended 3 times soon after it served")
	require.EqualValues(t, 1, restarts().Restarts)

	// The kubelet ends the Pod: the Pods of the replica come before the group again, which was recreated
	// as often as it may be.
	s.endPod(failing)
	now = s.recreates(now, false)
	s.eventSays("the Pods of replica decode-0 of group llama-1 are recreated: Pod " + failing + " has ended")
	s.endPod(failing)
	var failed v1alpha1.ServingGroupStatus
	s.eventually("the group has failed", func() bool {
		failed = s.modelServing("llama").Status.Groups[1]
		return failed.State == v1alpha1.GroupFailed
	})
	assert.Equal(t, v1alpha1.ReasonTooManyRestarts, failed.Reason)
	assert.Contains(t, failed.Message, "Pod "+failing+" has ended; the group was recreated 1 times, and is tried again at ")
	s.stays("its Pods stay as they are", func() bool {
		prefill, decode := s.podsOf(1)
		return now == [2]types.UID{prefill, decode} && s.pod(failing).Status.Phase == corev1.PodFailed
	})

	// The other group serves, by the Pods that it had.
	status := s.modelServing("llama").Status
	assert.Equal(t, []v1alpha1.ServingGroupState{v1alpha1.GroupRunning, v1alpha1.GroupFailed}, []v1alpha1.ServingGroupState{status.Groups[0].State, status.Groups[1].State})
	assert.EqualValues(t, 1, status.ReadyReplicas)
	for _, role := range []string{"prefill", "decode"} {
		answered, err := s.ask(s.leadsToLauncher("llama-0-"+role+"-0-0"), "org/"+role)
		require.NoError(t, err)
		assert.Equal(t, "org/"+role, answered)
	}

	// A controller that starts now knows how often the group was recreated. One more time is allowed.
	s.killController(s.controller())
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.MaxGroupRestarts = new(int32(2)) })
	s.recreates(now, true)
	assert.EqualValues(t, 2, restarts().Restarts)
	prefill, decode = s.podsOf(0)
	assert.Equal(t, others, [2]types.UID{prefill, decode})
}
