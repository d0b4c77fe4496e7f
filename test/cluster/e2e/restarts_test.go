//go:build cluster

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// twoGroups creates a ModelServing of two groups, each of a prefill and a decode requester.
func (s *site) twoGroups(policy v1alpha1.RecoveryPolicy) {
	s.t.Helper()
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, "llama"
	serving.Spec.Replicas, serving.Spec.RecoveryPolicy = new(int32(2)), policy
	for _, role := range []string{"prefill", "decode"} {
		serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, v1alpha1.ServingRole{Name: role, EntryTemplate: s.entryOf(role)})
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
}

// podsOf returns the UIDs of a group's Pods that stay, by role.
func (s *site) podsOf(group int) (prefill, decode types.UID) {
	s.t.Helper()
	uid := func(role string) types.UID { return s.uidOf(fmt.Sprintf("llama-%d-%s-0-0", group, role)) }
	return uid("prefill"), uid("decode")
}

// uidOf returns the UID of a Pod that stays; empty: there is none.
func (s *site) uidOf(name string) types.UID {
	s.t.Helper()
	var pod corev1.Pod
	err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &pod)
	require.NoError(s.t, client.IgnoreNotFound(err))
	if !pod.DeletionTimestamp.IsZero() {
		return ""
	}
	return pod.UID
}

// onExit waits until all requesters of both groups say what becomes of them.
func (s *site) onExit(want podmeta.OnExit) {
	s.t.Helper()
	s.eventually("the requesters have the policy "+string(want), func() bool {
		for group := range 2 {
			for _, role := range []string{"prefill", "decode"} {
				if s.pod(fmt.Sprintf("llama-%d-%s-0-0", group, role)).Annotations[podmeta.AnnotationOnExit] != string(want) {
					return false
				}
			}
		}
		return true
	})
}

// killServer ends the engine of a requester.
func (s *site) killServer(requester string) {
	s.t.Helper()
	_, instance := s.boundTo(requester)
	s.killRank(requester, instance)
}

func TestRecoveryPolicySaysWhatIsRestarted(t *testing.T) {
	s := newPool(t, nil)
	s.twoGroups(v1alpha1.RecoverGroup)
	s.runs("llama", 2)
	s.onExit(podmeta.OnExitDelete)

	// All Pods of the group are recreated, and those of the other group stay.
	prefill, decode := s.podsOf(0)
	otherPrefill, otherDecode := s.podsOf(1)
	s.killServer("llama-1-decode-0-0")
	s.eventually("all Pods of llama-1 are recreated", func() bool {
		p, d := s.podsOf(1)
		return p != "" && d != "" && p != otherPrefill && d != otherDecode
	})
	status := s.runs("llama", 2).Status
	require.NotNil(t, status.Groups[1].Restart)
	assert.EqualValues(t, 1, status.Groups[1].Restart.Restarts)
	otherPrefill, otherDecode = s.podsOf(1)
	p, d := s.podsOf(0)
	assert.Equal(t, []types.UID{prefill, decode}, []types.UID{p, d})
	s.eventually("an Event says so", func() bool {
		for _, message := range s.events("llama") {
			if message == "all Pods of group llama-1 are recreated: a Pod of decode-0 is gone, or is being deleted" {
				return true
			}
		}
		return false
	})

	// The server is started again, for the same Pod.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.RecoveryPolicy = v1alpha1.RecoverRole })
	s.onExit(podmeta.OnExitRestart)
	launcher, before := s.boundTo("llama-0-prefill-0-0")
	s.killServer("llama-0-prefill-0-0")
	s.eventually("the server is started again", func() bool {
		now, err := s.launcher(launcher.Name).Get(t.Context(), before.InstanceID)
		return err == nil && now.State == "awake" && now.PID != before.PID
	})
	s.runs("llama", 2)

	// Nothing is started again, until somebody deletes the Pod.
	s.changeServing(func(spec *v1alpha1.ModelServingSpec) { spec.RecoveryPolicy = v1alpha1.RecoverNone })
	s.onExit(podmeta.OnExitKeep)
	s.killServer("llama-0-decode-0-0")
	var g v1alpha1.ServingGroupStatus
	s.eventually("the group has failed", func() bool {
		g = s.modelServing("llama").Status.Groups[0]
		return g.State == v1alpha1.GroupFailed
	})
	assert.Equal(t, v1alpha1.ReasonNotRestarted, g.Reason)
	assert.Contains(t, g.Message, "the server of Pod llama-0-decode-0-0 is failed")
	_, kept := s.boundTo("llama-0-decode-0-0")
	assert.Equal(t, "failed", kept.State)
	for group, want := range [][]types.UID{{prefill, decode}, {otherPrefill, otherDecode}} {
		p, d := s.podsOf(group)
		assert.Equal(t, want, []types.UID{p, d}, group)
	}
	s.kubectl("delete", "pod/llama-0-decode-0-0", "--wait=false")
	s.runs("llama", 2)
}
