package manager

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/launcherpool"
	"hotseat.dev/hotseat/dualpods/internal/servers/serverconfig"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAControllerThatIsToldToEndWhileTheAPIServerHangsDoes(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer hanging.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Config: &rest.Config{Host: "http://" + hanging.Addr().String()}, MetricsAddress: "0", ProbesAddress: "0", Nodes: 1, Log: logr.Discard(),
		})
	}()
	conn, err := hanging.Accept() // it has begun to ask
	require.NoError(t, err)
	defer conn.Close()
	stop()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "cannot reach the API server")
	case <-time.After(patience.Wait()):
		require.Fail(t, "the controller goes on")
	}
}

func TestAReplicaWithAnIdentityAndNoPlaceForTheLeaseSaysSo(t *testing.T) {
	err := Run(t.Context(), Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, LeaderElection: true, Identity: "a", MetricsAddress: "0", ProbesAddress: "0", Log: logr.Discard(),
	})
	require.ErrorContains(t, err, "no namespace for the Lease")
}

// pods are those in the cache, with the indexes that the controllers make.
type pods struct {
	client.Client // nil
	all           []corev1.Pod
}

func (p pods) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
		return errors.New("copies all Pods, of which there may be thousands")
	}
	for _, pod := range p.all {
		if o.Namespace != "" && o.Namespace != pod.Namespace {
			continue
		}
		if o.FieldSelector != nil {
			if node, ok := o.FieldSelector.RequiresExactMatch(dualpods.IndexNode); ok && pod.Spec.NodeName != node {
				continue
			}
			if name, ok := o.FieldSelector.RequiresExactMatch(serverconfig.IndexConfig); ok && !slices.Contains(serverconfig.IndexedConfig(&pod), name) {
				continue
			}
		}
		list := into.(*corev1.PodList)
		list.Items = append(list.Items, pod)
	}
	return nil
}

func pod(namespace, node string, labels, annotations map[string]string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: labels, Annotations: annotations}}
	p.Spec.NodeName = node
	return p
}

func launcherOn(node, config string) corev1.Pod {
	return pod("ours", node, launcherpool.Labels(config), nil)
}

func requesterOn(namespace, node, config string) corev1.Pod {
	return pod(namespace, node, nil, map[string]string{podmeta.AnnotationInferenceServerConfig: config})
}

func names(requests []reconcile.Request) (nodes []string) {
	for _, r := range requests {
		nodes = append(nodes, r.Name)
	}
	slices.Sort(nodes)
	return nodes
}

func TestWhatChangesHasTheNodesLookedAtThatItConcerns(t *testing.T) {
	cache := pods{all: []corev1.Pod{
		launcherOn("n1", "vllm"), launcherOn("n2", "other"),
		requesterOn("ours", "n3", "llama"), requesterOn("ours", "n3", "llama"), requesterOn("ours", "n4", "qwen"), requesterOn("theirs", "n5", "llama"),
		pod("ours", "n6", nil, nil), requesterOn("ours", "", "llama"),
	}}
	config := &v1alpha1.InferenceServerConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "llama"}}
	assert.Equal(t, []string{"", "n3"}, names(nodesOfConfig(cache)(t.Context(), config)), "each once, and those without a node, for their input may be wrong")
	launchers := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "vllm"}}
	assert.Equal(t, []string{"n3", "n4"}, names(nodesOfNamespace(cache)(t.Context(), launchers)))
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Labels: launcherpool.Labels("vllm")}}
	assert.Equal(t, []string{"n1", "n3", "n4"}, names(nodesOfSecret(cache)(t.Context(), token)), "launchers that have it, and requesters that may wait for one")

	for node, p := range map[string]corev1.Pod{"n1": cache.all[0], "n3": cache.all[2], "": cache.all[7]} {
		assert.Equal(t, []string{node}, names(nodeOfPod(t.Context(), &p)))
	}

	other := cache.all[6]
	assert.Empty(t, nodeOfPod(t.Context(), &other), "a Pod that is neither")
}

func TestAStatusThatOnlyCountsHasNoNodeLookedAt(t *testing.T) {
	before := &v1alpha1.LauncherConfig{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	changed := func(change func(*v1alpha1.LauncherConfig)) bool {
		after := before.DeepCopy()
		change(after)
		return configChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	assert.False(t, changed(func(c *v1alpha1.LauncherConfig) { c.Status.Asleep, c.Status.SleepsOn = 3, "n1" }))
	assert.True(t, changed(func(c *v1alpha1.LauncherConfig) { c.Generation = 2 }))
	assert.True(t, changed(func(c *v1alpha1.LauncherConfig) {
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}}
	}))
}

func TestANodeThatIsAskedForBeforeTheQueueIsThereIsNoHarm(t *testing.T) {
	var again requests
	again.add("too early")
	again.addLater(client.ObjectKey{Name: "too early"})
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	require.NoError(t, again.begin(t.Context(), queue))
	again.add("n1")
	again.add("n1")
	got, _ := queue.Get()
	assert.Equal(t, "n1", got.Name)
	queue.Done(got)
	assert.Zero(t, queue.Len(), "twice is once")
}

func TestTheTokensOfLaunchersAreAllTheSecretsThatAreWatched(t *testing.T) {
	own, err := ownOnly()
	require.NoError(t, err)
	for o, by := range own {
		if _, ok := o.(*corev1.Secret); !ok {
			continue
		}
		assert.True(t, by.Label.Matches(labels.Set{podmeta.LabelLauncherConfig: "any"}))
		assert.False(t, by.Label.Matches(labels.Set{podmeta.LabelManagedBy: podmeta.ManagedBy}))
		return
	}
	require.Fail(t, "all Secrets are watched")
}
