//go:build cluster && clusterlong

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/spec/v1alpha1"
)

// onBothNodes creates a ModelServing of one group, with a prefill server on the first node and a decode
// server on the second.
func (s *site) onBothNodes(name string, policy v1alpha1.RecoveryPolicy) {
	s.t.Helper()
	serving := &v1alpha1.ModelServing{}
	serving.Namespace, serving.Name = s.ns, name
	serving.Spec.RecoveryPolicy = policy
	for n, role := range []string{"prefill", "decode"} {
		serving.Spec.Template.Roles = append(serving.Spec.Template.Roles, v1alpha1.ServingRole{Name: role, EntryTemplate: raw(s.t, server{app: name, node: n + 1}.template(s.t))})
	}
	require.NoError(s.t, s.api.Create(s.t.Context(), serving))
}

// TestGroupsOfALostNodeAreRestartedOnceByTheirPolicy has Kubernetes itself delete the Pods of the node.
func TestGroupsOfALostNodeAreRestartedOnceByTheirPolicy(t *testing.T) {
	s := newPool(t, nil)
	policies := map[string]v1alpha1.RecoveryPolicy{"role": v1alpha1.RecoverRole, "whole": v1alpha1.RecoverGroup}
	prefill, decode := map[string]types.UID{}, map[string]types.UID{}
	for name, policy := range policies {
		s.onBothNodes(name, policy)
	}
	for name := range policies {
		s.runs(name, 1)
		prefill[name], decode[name] = s.uidOf(name+"-0-prefill-0-0"), s.uidOf(name+"-0-decode-0-0")
	}

	back := s.loseNode(2)
	for name := range policies {
		s.eventually("the decode server of "+name+" waits for a node", func() bool {
			uid := s.uidOf(name + "-0-decode-0-0")
			return uid != "" && uid != decode[name] && s.pod(name+"-0-decode-0-0").Spec.NodeName == ""
		})
	}
	s.eventually("all Pods of the other group were recreated", func() bool {
		uid := s.uidOf("whole-0-prefill-0-0")
		return uid != "" && uid != prefill["whole"] && readyPod(s.pod("whole-0-prefill-0-0"))
	})
	again := map[string]types.UID{"role": prefill["role"], "whole": s.uidOf("whole-0-prefill-0-0")}

	back()
	s.allReady()
	for name := range policies {
		s.runs(name, 1)
		assert.Equal(t, again[name], s.uidOf(name+"-0-prefill-0-0"), "the prefill server of %s stays", name)
		answered, err := s.ask(s.leadsToLauncher(name+"-0-decode-0-0"), "org/"+name)
		require.NoError(t, err)
		assert.Equal(t, "org/"+name, answered)
	}
	// Kubernetes says that a Pod of a lost node has failed before it deletes the Pod: the controller may see
	// that or not.
	if restart := s.modelServing("role").Status.Groups[0].Restart; restart != nil {
		assert.Zero(t, restart.Restarts)
		assert.LessOrEqual(t, len(restart.Roles), 1)
	}
	restart := s.modelServing("whole").Status.Groups[0].Restart
	require.NotNil(t, restart)
	assert.EqualValues(t, 1, restart.Restarts)
	s.eventually("an Event says so", func() bool {
		return strings.HasPrefix(strings.Join(s.events("whole"), "\n"), "all Pods of group whole-0 are recreated: ")
	})
}
