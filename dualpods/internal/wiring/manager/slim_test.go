package manager

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestThePodsOfOthersAreCachedByNameAlone(t *testing.T) {
	theirs := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "p", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "a"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
			},
			Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}},
			Status: corev1.PodStatus{PodIP: "10.1.2.3"},
		}
	}
	slimmed := func(o any) any {
		got, err := slim(o)
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "7"},
		Spec:       corev1.PodSpec{NodeName: "n"},
	}, slimmed(theirs()))

	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"a": "b"}},
		Secrets:    []corev1.ObjectReference{{Name: "s"}},
	}
	assert.Equal(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "7"}, Secrets: account.Secrets}, slimmed(account))

	mounts := theirs()
	claim := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	mounts.Spec.Volumes, mounts.Status.Phase = []corev1.Volume{{Name: "other"}, claim}, corev1.PodSucceeded
	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "7"},
		Spec:       corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{claim}}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
	}, slimmed(mounts), "which claims it mounts, and whether it has ended")

	gpus := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	has := theirs()
	has.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: gpus(1)}}, {Name: "b", Resources: corev1.ResourceRequirements{Requests: gpus(2)}}}
	has.Status.Phase = corev1.PodRunning
	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", ResourceVersion: "7"},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpus(3)}}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}, slimmed(has), "how many GPUs it has")

	for what, mark := range map[string]func(*corev1.Pod){
		"one that waits for its gang": func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.GateGang}} },
		"one that fetches a model":    func(p *corev1.Pod) { p.Labels = map[string]string{podmeta.LabelModelCacheUID: "u"} },
		"one of a ModelServing": func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hotseat.dev/v1alpha1", Kind: podmeta.KindServing, Name: "llama", UID: "s", Controller: new(true)}}
		},
		"a requester": func(p *corev1.Pod) { p.Annotations = map[string]string{podmeta.AnnotationServerPatch: "{}"} },
		"a requester whose input somebody took away": func(p *corev1.Pod) { p.Finalizers = []string{podmeta.FinalizerRequester} },
		"a launcher": func(p *corev1.Pod) {
			p.Labels = map[string]string{podmeta.LabelComponent: podmeta.ComponentLauncher, podmeta.LabelLauncherConfig: "simulated"}
		},
	} {
		ours, want := theirs(), theirs()
		mark(ours)
		mark(want)
		want.ManagedFields = nil
		assert.Equal(t, want, slimmed(ours), "%s keeps its spec, and what is read of its status", what)
	}

	last := toolscache.DeletedFinalStateUnknown{Key: "default/p", Obj: theirs()}
	assert.Equal(t, last, slimmed(last))
}

func TestOfNodesIsCachedWhetherPodsMayComeAndTheirLabels(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"gpu": "yes"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Images:      []corev1.ContainerImage{{Names: []string{"large"}}},
			Allocatable: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("8"), corev1.ResourceCPU: resource.MustParse("96")},
		},
	}
	got, err := slim(node)
	require.NoError(t, err)
	assert.Equal(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"gpu": "yes"}}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("8")}},
	}, got)
}

func TestLabelsThatManyNodesHaveAreHeldOnce(t *testing.T) {
	read := func(name string) *corev1.Node { // each of them has texts of its own
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{strings.Clone("models/a"): strings.Clone("ready")}}}
		_, err := slim(node)
		require.NoError(t, err)
		return node
	}
	held := func(node *corev1.Node) (where []*byte) {
		for key, value := range node.Labels {
			where = append(where, unsafe.StringData(key), unsafe.StringData(value))
		}
		return where
	}
	first := read("n1")
	runtime.GC() // which leaves what a node has
	runtime.GC()
	second := read("n2")
	assert.Equal(t, map[string]string{"models/a": "ready"}, second.Labels)
	assert.Len(t, held(first), 2)
	for n, where := range held(first) {
		assert.Same(t, where, held(second)[n])
	}
}

func TestOfNamespacesIsCachedFromWhereTheirModelsComeAlone(t *testing.T) {
	ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	ns.Name, ns.Labels, ns.Annotations = "n", map[string]string{"a": "b"}, map[string]string{podmeta.AnnotationModelCache: "off", "other": "x"}
	got, err := slim(ns)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{podmeta.AnnotationModelCache: "off"}, got.(*metav1.PartialObjectMetadata).Annotations)
	assert.Empty(t, got.(*metav1.PartialObjectMetadata).Labels)
}

func TestServicesThatAskForNoSlicesAreCachedByNameAlone(t *testing.T) {
	service := func(annotations map[string]string, conditions ...metav1.Condition) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Annotations: annotations},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1"}, Status: corev1.ServiceStatus{Conditions: conditions},
		}
	}
	slimmed := func(s *corev1.Service) any {
		got, err := slim(s)
		require.NoError(t, err)
		return got
	}
	asks := map[string]string{podmeta.AnnotationEndpoints: "app=a"}
	asked := metav1.Condition{Type: podmeta.ConditionEndpoints}
	assert.Equal(t, service(asks), slimmed(service(asks)))
	assert.Equal(t, service(nil, asked), slimmed(service(nil, asked)), "one that asked: its condition is to go")
	assert.Equal(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "u", ResourceVersion: "7"}}, slimmed(service(nil)))
	owned := service(nil)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hotseat.dev/v1alpha1", Kind: podmeta.KindServing, Name: "llama", UID: "s", Controller: new(true)}}
	assert.Equal(t, owned.DeepCopy(), slimmed(owned), "one of a ModelServing")
}
