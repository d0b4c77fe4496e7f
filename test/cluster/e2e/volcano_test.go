//go:build cluster

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// definePodGroups has the cluster know Volcano's PodGroups while the test runs, and returns a
// client for them. The cluster has no scheduler of Volcano.
func (s *site) definePodGroups() client.Client {
	s.t.Helper()
	definitions := filepath.Join(s.t.TempDir(), "volcano.yaml")
	out, err := exec.CommandContext(s.t.Context(), "go", "tool", "controller-gen", "crd", "paths=volcano.sh/apis/pkg/apis/scheduling/v1beta1", "output:stdout").Output()
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(definitions, out, 0o600))
	require.NoError(s.t, s.applyFile(s.t.Context(), "", definitions))
	s.t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), patience.Wait())
		defer stop()
		_, err := s.cluster.Kubectl(ctx, nil, "delete", "--ignore-not-found", "-f", definitions)
		assert.NoError(s.t, err)
	})
	scheme := runtime.NewScheme()
	require.NoError(s.t, volcano.AddToScheme(scheme))
	api, err := client.New(s.rest, client.Options{Scheme: scheme})
	require.NoError(s.t, err)
	return api
}

func TestVolcanoGetsAPodGroupForEachGroup(t *testing.T) {
	s := newBareSite(t)
	api := s.definePodGroups()
	podGroups := func() map[string]volcano.PodGroupSpec {
		var list volcano.PodGroupList
		require.NoError(t, api.List(t.Context(), &list, client.InNamespace(s.ns)))
		all := map[string]volcano.PodGroupSpec{}
		for _, g := range list.Items {
			all[g.Name] = g.Spec
		}
		return all
	}
	s.gang("sample", 3, 2, func(serving *v1alpha1.ModelServing) {
		serving.Annotations = map[string]string{volcano.QueueNameAnnotationKey: "inference"}
		serving.Spec.Replicas, serving.Spec.SchedulerName = new(int32(2)), "volcano"
		serving.Spec.Template.NetworkTopology = &v1alpha1.NetworkTopology{RolePolicy: &v1alpha1.NetworkTopologyPolicy{HighestTierAllowed: new(int32(1))}}
	})
	s.eventually("each group has a PodGroup", func() bool { return len(podGroups()) == 2 })
	is := podGroups()["sample-1"]
	assert.Equal(t, int32(2), is.MinMember)
	assert.Equal(t, "inference", is.Queue)
	assert.Empty(t, is.MinTaskMember)
	require.Len(t, is.SubGroupPolicy, 1)
	assert.Equal(t, []int32{1, 2}, []int32{*is.SubGroupPolicy[0].SubGroupSize, *is.SubGroupPolicy[0].MinSubGroups})
	assert.Equal(t, 1, *is.SubGroupPolicy[0].NetworkTopology.HighestTierAllowed)
	gpus := (*is.MinResources)[podmeta.ResourceGPU]
	assert.Equal(t, int64(2), gpus.Value())

	var pods corev1.PodList
	s.eventually("the Pods are there", func() bool {
		require.NoError(t, s.api.List(t.Context(), &pods, client.InNamespace(s.ns), client.MatchingLabels{podmeta.LabelServing: "sample"}))
		return len(pods.Items) == 6
	})
	for _, p := range pods.Items {
		assert.Equal(t, []string{"volcano", p.Labels[podmeta.LabelServingGroup], p.Labels[podmeta.LabelServingRoleID]}, []string{p.Spec.SchedulerName, p.Annotations[volcano.KubeGroupNameAnnotationKey], p.Annotations["volcano.sh/task-spec"]}, p.Name)
		assert.False(t, podmeta.AwaitsGang(&p), "%s waits for Volcano alone", p.Name)
	}
	s.eventually("the condition says so", func() bool {
		return meta.IsStatusConditionTrue(s.modelServing("sample").Status.Conditions, v1alpha1.ConditionPodGroups)
	})

	changed := s.modelServing("sample")
	changed.Spec.Replicas, changed.Spec.Template.GangPolicy = new(int32(1)), nil
	require.NoError(t, s.api.Update(t.Context(), changed))
	s.eventually("the group that stays counts all its Pods", func() bool {
		all := podGroups()
		return len(all) == 1 && all["sample-0"].MinMember == 3
	})
	require.NoError(t, s.api.Delete(t.Context(), s.modelServing("sample")))
	s.eventually("the PodGroups go with the ModelServing", func() bool { return len(podGroups()) == 0 })
}
