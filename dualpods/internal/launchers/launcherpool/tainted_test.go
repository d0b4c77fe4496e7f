package launcherpool

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// changeNode changes the specification of a node.
func (p *Pool) changeNode(t *testing.T, name string, change func(*corev1.NodeSpec)) {
	t.Helper()
	var node corev1.Node
	require.NoError(t, p.opts.API.Get(t.Context(), client.ObjectKey{Name: name}, &node))
	change(&node.Spec)
	require.NoError(t, p.opts.API.Update(t.Context(), &node))
}

func hasTaint(key string, effect corev1.TaintEffect) func(*corev1.NodeSpec) {
	return func(n *corev1.NodeSpec) { n.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
}

// changePod changes a launcher, but for its status.
func (p *Pool) changePod(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, p.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod))
	change(&pod)
	require.NoError(t, p.opts.API.Update(t.Context(), &pod))
}

// boundAndUnready has a launcher have a record, and be unready.
func (p *Pool) boundAndUnready(t *testing.T, name string) {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, p.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, &pod))
	pod.Annotations[podmeta.AnnotationBindingPrefix+"x"] = "{}"
	require.NoError(t, p.opts.API.Update(t.Context(), &pod))
	pod.Status.Conditions = nil
	require.NoError(t, p.opts.API.Status().Update(t.Context(), &pod))
}

func TestRolloutGoesOnBesideNodesThatTakeNoLaunchers(t *testing.T) {
	const all, untilBack = 1, 0 // launchers that are replaced while the budget is one node
	cordoned := func(n *corev1.NodeSpec) { n.Unschedulable = true }
	for name, c := range map[string]struct {
		mode     v1alpha1.PopulationMode
		change   func(*corev1.NodeSpec)
		replaced int
	}{
		"a taint":                      {v1alpha1.PerNode, hasTaint("team", corev1.TaintEffectNoSchedule), all},
		"a taint that evicts":          {v1alpha1.PerNode, hasTaint("team", corev1.TaintEffectNoExecute), all},
		"a taint, on demand":           {v1alpha1.OnDemand, hasTaint("team", corev1.TaintEffectNoSchedule), all},
		"a taint that is a wish":       {v1alpha1.PerNode, hasTaint("team", corev1.TaintEffectPreferNoSchedule), untilBack},
		"it is cordoned":               {v1alpha1.PerNode, cordoned, untilBack}, // a DaemonSet does not heed it
		"it is cordoned, on demand":    {v1alpha1.OnDemand, cordoned, all},
		"it is down":                   {v1alpha1.PerNode, hasTaint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), untilBack},
		"it is down, on demand":        {v1alpha1.OnDemand, hasTaint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule), untilBack},
		"it is shut down":              {v1alpha1.PerNode, hasTaint("node.cloudprovider.kubernetes.io/shutdown", corev1.TaintEffectNoSchedule), untilBack},
		"its disk is full":             {v1alpha1.PerNode, hasTaint(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule), untilBack},
		"it is given up by its admins": {v1alpha1.PerNode, hasTaint(corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute), all},
	} {
		t.Run(name, func(t *testing.T) {
			pool, config := rolling(t, c.mode, 1, 1)
			pool.changeNode(t, "node-0", c.change)
			pool.boundAndUnready(t, "launcher-0")
			pool.look(t, config)
			assert.Len(t, pool.living(t), 2-c.replaced)
			assert.Equal(t, "launcher-0", pool.living(t)["node-0"])
		})
	}
}

func TestLauncherOfATaintedNodeStaysUntilOneCanFollow(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 3)
	pool.changeNode(t, "node-0", hasTaint("team", corev1.TaintEffectNoSchedule))
	told := pool.upToDate(t, config)
	assert.Equal(t, map[string]string{"node-0": "launcher-0"}, pool.living(t), "three models sleep there")
	assert.Equal(t, v1alpha1.ReasonNodesTainted, told.Reason)
	need := dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0", Image: "vllm/vllm-openai:v0.11.0"}
	wait := pool.Lacking(t.Context(), need)
	require.NotNil(t, wait)
	const remedy = "the node accepts a new launcher: remove the taints of the node, or tolerate them in spec.podTemplate or the ModelCacheNodeGroup"
	assert.Contains(t, wait.Why, "it is replaced once "+remedy)
	assert.True(t, wait.Stuck)
	pool.boundAndUnready(t, "launcher-0")
	assert.Contains(t, pool.Lacking(t.Context(), need).Why, "it is replaced once no requester is bound to it and "+remedy)
	pool.changePod(t, "launcher-0", func(pod *corev1.Pod) { delete(pod.Annotations, podmeta.AnnotationBindingPrefix+"x") })
	pool.changeNode(t, "node-0", func(n *corev1.NodeSpec) { n.Taints = nil })
	pool.look(t, config)
	assert.Empty(t, pool.living(t))
}

func TestDeletedLauncherDoesNotWaitForItsNodesTaint(t *testing.T) {
	pool, _ := rolling(t, v1alpha1.PerNode, 1)
	pool.changeNode(t, "node-0", hasTaint("team", corev1.TaintEffectNoSchedule))
	pool.changePod(t, "launcher-0", func(pod *corev1.Pod) { pod.Finalizers = []string{podmeta.FinalizerProvider} })
	var pod corev1.Pod
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "launcher-0"}, &pod))
	require.NoError(t, pool.opts.API.Delete(t.Context(), &pod))
	wait := pool.Lacking(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0", Image: "vllm/vllm-openai:v0.11.0"})
	require.NotNil(t, wait)
	assert.Contains(t, wait.Why, "it is replaced once no requester is bound to it, as spec.rollout allows")
	assert.False(t, wait.Stuck)
}

func TestLauncherOutlastsThePressureOnItsNode(t *testing.T) {
	for _, mode := range []v1alpha1.PopulationMode{v1alpha1.PerNode, v1alpha1.OnDemand} {
		for _, pressure := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure} {
			pool, config := rolling(t, mode, 3)
			pool.changeNode(t, "node-0", hasTaint(pressure, corev1.TaintEffectNoSchedule))
			told := pool.upToDate(t, config)
			assert.Equal(t, map[string]string{"node-0": "launcher-0"}, pool.living(t), "three models sleep there")
			assert.Equal(t, v1alpha1.ReasonNodesTainted, told.Reason)
			wait := pool.Lacking(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Config: "vllm", Node: "node-0", Image: "vllm/vllm-openai:v0.11.0"})
			require.NotNil(t, wait)
			assert.Contains(t, wait.Why, "it is replaced once the node accepts a new launcher: the node is short of memory, disk space or process IDs")
			assert.False(t, wait.Stuck, "pressure passes")
			pool.changeNode(t, "node-0", func(n *corev1.NodeSpec) { n.Taints = nil })
			pool.look(t, config)
			assert.Empty(t, pool.living(t))
		}
	}
}

func TestConditionNamesTheNodeThatHasNoLauncher(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 1)
	for _, name := range []string{"node-y", "node-x"} {
		require.NoError(t, pool.opts.API.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	told := pool.upToDate(t, config)
	assert.Equal(t, map[string]string{"node-0": "launcher-0"}, pool.living(t), "two nodes are without a launcher")
	assert.Contains(t, told.Message, "; node node-x has no launcher yet")
}

func TestLauncherOfATaintedNodeIsNotReadyForAnother(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 0, 0)
	pool.changeNode(t, "node-0", hasTaint("team", corev1.TaintEffectNoSchedule))
	crash := func(pod *corev1.Pod) { pod.Status.Conditions = nil }
	var pod corev1.Pod
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "launcher-1"}, &pod))
	crash(&pod)
	require.NoError(t, pool.opts.API.Status().Update(t.Context(), &pod))
	var edited v1alpha1.LauncherConfig
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &edited))
	edited.Spec.Rollout.MaxUnavailable = new(intstr.FromInt(0))
	require.NoError(t, pool.opts.API.Update(t.Context(), &edited))
	pool.opts.Views = said{string(pod.UID): view("a")}
	pool.look(t, config)
	var set appsv1.DaemonSet
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vllm-launcher"}, &set))
	set.Status.DesiredNumberScheduled = 1 // node-0 does not count
	require.NoError(t, pool.opts.API.Status().Update(t.Context(), &set))
	pool.look(t, config)
	require.NoError(t, pool.opts.API.Get(t.Context(), client.ObjectKeyFromObject(config), &edited))
	assert.EqualValues(t, 1, edited.Status.Launchers)
	assert.EqualValues(t, 0, edited.Status.Ready)
	is := meta.FindStatusCondition(edited.Status.Conditions, v1alpha1.ConditionAvailable)
	assert.Equal(t, metav1.ConditionFalse, is.Status)
	assert.Contains(t, is.Message, "0 of 1 launchers are ready; launcher-1 on node node-1")
}

func TestNodesWithoutALauncherCountIfTheyTakeOne(t *testing.T) {
	pool, config := rolling(t, v1alpha1.PerNode, 0, 0)
	add := func(name string, change func(*corev1.NodeSpec)) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if change != nil {
			change(&node.Spec)
		}
		require.NoError(t, pool.opts.API.Create(t.Context(), node))
	}
	count := func(tolerations ...corev1.Toleration) [2]int {
		f := &observation{config: config}
		f.template.Spec.Tolerations = tolerations
		f.template.Annotations = map[string]string{podmeta.AnnotationTemplateHash: "new"}
		var err error
		f.launchers, err = pool.launchers(t.Context(), config)
		require.NoError(t, err)
		nodes, missing, err := pool.nodesOf(t.Context(), f, pool.standings(t.Context(), f))
		require.NoError(t, err)
		return [2]int{nodes, len(missing)}
	}
	assert.Equal(t, [2]int{2, 0}, count())
	add("control-plane", hasTaint("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule))
	assert.Equal(t, [2]int{2, 0}, count(), "a DaemonSet does not count it either")
	add("empty", nil)
	assert.Equal(t, [2]int{3, 1}, count())
	assert.Equal(t, [2]int{4, 2}, count(corev1.Toleration{Operator: corev1.TolerationOpExists}))
	pool.changeNode(t, "node-1", hasTaint("team", corev1.TaintEffectNoSchedule))
	assert.Equal(t, [2]int{2, 1}, count(), "the launcher of node-1 hides no other node")
}

// nodeReads counts how often nodes are read.
type nodeReads struct {
	client.Client
	n int
}

func (r *nodeReads) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if _, is := into.(*corev1.Node); is {
		r.n++
	}
	return r.Client.Get(ctx, key, into, opts...)
}

func TestNodeIsReadOnceForEachQuestion(t *testing.T) {
	pool, config, _ := poolOf(t, v1alpha1.OnDemand)
	reads := &nodeReads{Client: pool.opts.API}
	pool.opts.API = reads
	_, err := pool.unused(t.Context(), &observation{config: config}, pending("node-0"))
	require.NoError(t, err)
	assert.Equal(t, 1, reads.n)
	pool.Lacking(t.Context(), dualpods.LauncherNeed{Namespace: "ns", Node: "node-0"})
	assert.Equal(t, 2, reads.n)
}
