//go:build cluster && clusterlong

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// TestGangThatMissesItsDeadlineGivesBackItsNodes has GPUs for both Pods, but not the CPUs that one
// of them wants: the controller counts GPUs alone.
func TestGangThatMissesItsDeadlineGivesBackItsNodes(t *testing.T) {
	s := newPool(t, nil)
	s.gang("llama", 1, 1, func(m *v1alpha1.ModelServing) {
		large := server{app: "llama"}.template(t)
		large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
		m.Spec.Template.Roles = append(m.Spec.Template.Roles, v1alpha1.ServingRole{Name: "large", EntryTemplate: raw(t, large)})
	})
	s.eventually("one Pod has a node", func() bool { placed, gated := s.onNodes("llama"); return placed == 1 && gated == 0 })
	before := s.pod("llama-0-server-0-0")
	s.within(time.Minute+patience.Wait(), "it gives its node back", func() bool {
		var pod corev1.Pod
		err := s.api.Get(t.Context(), client.ObjectKeyFromObject(before), &pod)
		return err == nil && pod.UID != before.UID && podmeta.AwaitsGang(&pod)
	})
	serving := s.modelServing("llama")
	s.eventually("an Event tells", func() bool { return s.event(serving.UID, "Insufficient cpu") })
	s.eventually("it is tried again", func() bool {
		gang := s.modelServing("llama").Status.Groups[0].Gang
		return gang.State == v1alpha1.GangAdmitted && gang.Misses == 1
	})
	assert.Zero(t, s.modelServing("llama").Status.ReadyReplicas)
}
