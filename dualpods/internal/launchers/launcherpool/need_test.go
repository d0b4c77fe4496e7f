package launcherpool

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// another returns a LauncherConfig of mode OnDemand with the spec, which is YAML.
func another(t *testing.T, name, spec string) *v1alpha1.LauncherConfig {
	t.Helper()
	config := configOf(t, spec)
	config.Name, config.UID = name, ""
	config.Spec.Population.Mode = v1alpha1.OnDemand
	return config
}

const withData = plain + `      volumeMounts: [{name: data, mountPath: /data}]
    volumes: [{name: data, hostPath: {path: /data}}]
`

func TestNeedWithoutANameGetsALauncherConfigThatFits(t *testing.T) {
	image := dualpods.LauncherNeed{Namespace: "ns", Image: "vllm/vllm-openai:v0.11.0", Node: "node-0"}
	mounts := image
	mounts.Mounts = []dualpods.Mount{{Path: "/data", Source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}}
	for name, c := range map[string]struct {
		need   dualpods.LauncherNeed
		others []client.Object
		config string
		says   string
	}{
		"the first by name":                    {image, []client.Object{another(t, "zz", plain)}, "vllm", ""},
		"the first one lacks a mount":          {mounts, []client.Object{another(t, "zz", withData)}, "zz", ""},
		"the first one selects other nodes":    {image, []client.Object{another(t, "a", "population: {nodeSelector: {gpu: h100}}\n"+plain)}, "vllm", ""},
		"the first one cannot be used":         {image, []client.Object{another(t, "a", "modelCache: {nodeGroup: none}\n"+plain)}, "vllm", ""},
		"none mounts what it needs":            {mounts, nil, "", `no LauncherConfig of namespace ns has the image "vllm/vllm-openai:v0.11.0" and mounts the volumes at /data: create one`},
		"the only one that fits is not usable": {mounts, []client.Object{another(t, "a", "modelCache: {nodeGroup: none}\n"+withData)}, "", "LauncherConfig a cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			pool, _, _ := poolOf(t, v1alpha1.OnDemand, c.others...)
			node, err := pool.node(t.Context(), c.need.Node)
			require.NoError(t, err)
			config, _, err := pool.config(t.Context(), c.need, node)
			if c.config == "" {
				assert.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.config, config.Name)
		})
	}
}

func TestLauncherWithoutAMountIsWaitedForOnlyIfReplaced(t *testing.T) {
	need := dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0"}
	need.Mounts = []dualpods.Mount{{Path: "/data", Source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}}
	for _, c := range []struct {
		spec    string
		most    int
		missing bool
		stuck   bool
		says    string
	}{
		{withData, 1, false, false, "launcher old was made from an earlier template of LauncherConfig vllm, and lacks what the requester needs: it is replaced once no requester is bound to it, as spec.rollout allows (condition UpToDate)"},
		{withData, 0, false, true, "launcher old was made from an earlier template of LauncherConfig vllm, and lacks what the requester needs: it is replaced once no requester is bound to it, as spec.rollout allows (condition UpToDate)"},
		{plain, 1, true, true, "launcher old of LauncherConfig vllm lacks what the requester needs"},
	} {
		pool, config, _ := poolOf(t, v1alpha1.PerNode)
		var edited v1alpha1.LauncherConfig
		require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &edited))
		edited.Spec.PodTemplate = configOf(t, c.spec).Spec.PodTemplate
		edited.Spec.Rollout.MaxUnavailable = new(intstr.FromInt(c.most))
		require.NoError(t, pool.opts.API.Update(t.Context(), &edited))
		own := ownedBy(config)
		old := marked("old", &own)
		require.NoError(t, pool.opts.API.Create(t.Context(), old))
		wait := pool.Lacking(t.Context(), need)
		require.NotNil(t, wait)
		assert.Equal(t, c.missing, wait.Missing)
		assert.Equal(t, c.stuck, wait.Stuck)
		assert.Equal(t, c.says, wait.Why)
	}
}

func TestOtherPodWithALaunchersNameIsDeletedUnlessItEnds(t *testing.T) {
	earlier := ownedBy(&v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Name: "vllm", UID: "earlier"}})
	const ends = "the earlier launcher vllm-node-0 still has requesters, or is being deleted: a new one is created once it is gone"
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		says   string
	}{
		"it has requesters": {func(pod *corev1.Pod) { pod.Finalizers = []string{podmeta.FinalizerProvider} }, ends},
		"it is going": {func(pod *corev1.Pod) {
			pod.Finalizers, pod.DeletionTimestamp = []string{"example.com/other"}, &metav1.Time{Time: time.Now()}
		}, ends},
		"it is of somebody else":                 {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, "another Pod is named vllm-node-0 and is no launcher of LauncherConfig vllm: delete it"},
		"it is a launcher of the LauncherConfig": {func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "config-uid" }, ""},
	} {
		pod := marked(podName("vllm", "node-0"), &earlier)
		c.change(pod)
		pool, _, _ := poolOf(t, v1alpha1.OnDemand, pod)
		err := pool.Create(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0"})
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		assert.EqualError(t, err, strings.ReplaceAll(c.says, "vllm-node-0", pod.Name), name)
	}
}
