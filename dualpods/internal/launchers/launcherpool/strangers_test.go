package launcherpool

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// marked returns a Pod on node-0 with the labels of a launcher of LauncherConfig vllm.
func marked(name string, owner *metav1.OwnerReference) *corev1.Pod {
	pod := launcherPod(name, "an earlier template", func(pod *corev1.Pod) {
		pod.Namespace, pod.UID, pod.Labels, pod.Spec.NodeName = "ns", types.UID(name), Labels("vllm"), "node-0"
	})
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return pod
}

func TestPoolLeavesPodsAloneThatItHasNotMade(t *testing.T) {
	made := ownedBy(&v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Name: "vllm", UID: "another"}})
	pool, config, _ := poolOf(t, v1alpha1.OnDemand, marked("labels-alone", nil), marked("made-up-owner", &made))
	own := ownedBy(config)
	outdated := marked("outdated", &own)
	require.NoError(t, pool.opts.API.Create(t.Context(), outdated))
	pool.look(t, config)
	var left corev1.PodList
	require.NoError(t, pool.opts.API.List(t.Context(), &left, client.UnsafeDisableDeepCopy))
	var names []string
	for _, pod := range left.Items {
		names = append(names, pod.Name)
	}
	assert.ElementsMatch(t, []string{"labels-alone", "made-up-owner"}, names, "the launcher of an earlier template is replaced")
	for _, name := range names {
		_, known := pool.ConfigOf(name)
		assert.False(t, known, name)
	}
	assert.Nil(t, pool.Lacking(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0"}), "they are no launchers of the node")
}

func TestNodeGroupSaysWhichNamespacesMayNameIt(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces []string
		problem    string
	}{
		"it lists none":       {nil, ""},
		"it lists this one":   {[]string{"other", "ns"}, ""},
		"it lists other ones": {[]string{"other"}, "spec.namespaces of ModelCacheNodeGroup gpu does not list namespace ns: have it added, or name another group"},
	} {
		t.Run(name, func(t *testing.T) {
			group := &v1alpha1.ModelCacheNodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: v1alpha1.ModelCacheNodeGroupSpec{Path: "/models", Namespaces: c.namespaces}}
			pool, config, _ := poolOf(t, v1alpha1.PerNode, group)
			config.Spec.ModelCache = &v1alpha1.LauncherModelCache{NodeGroup: "gpu"}
			found, problems, err := pool.modelGroup(t.Context(), config)
			require.NoError(t, err)
			if c.problem == "" {
				assert.Empty(t, problems)
				assert.Equal(t, "gpu", found.Name)
				return
			}
			require.Len(t, problems, 1)
			assert.Equal(t, c.problem, problems[0].Message)
			assert.Nil(t, found, "its folder is not mounted")
		})
	}
}
