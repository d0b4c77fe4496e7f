package gang

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/roles/groups"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// serving returns a ModelServing of one group with the role prefill, whose two replicas have an
// entry and a worker each. One replica is counted.
func serving(name string) *v1alpha1.ModelServing {
	s := &v1alpha1.ModelServing{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now)},
		Spec: v1alpha1.ModelServingSpec{Template: v1alpha1.ServingGroupTemplate{
			Roles:      []v1alpha1.ServingRole{{Name: "prefill", Replicas: new(int32(2)), WorkerReplicas: new(int32(1)), InferenceServerConfig: "a"}},
			GangPolicy: &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}},
		}},
	}
	s.Status.Groups = []v1alpha1.ServingGroupStatus{{Name: name + "-0"}}
	return s
}

// gatedPod returns a Pod of a ModelServing as package groups creates it.
func gatedPod(s *v1alpha1.ModelServing, name string, gpus int64) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: name, UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind(podmeta.KindServing))},
	}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: podmeta.GateGang}}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: gpuList(gpus)}}}
	return pod
}

func gpuList(gpus int64) corev1.ResourceList {
	return corev1.ResourceList{podmeta.ResourceGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
}

func node(name string, free int64) Node {
	return Node{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, free}
}

// matter makes a Pod what a case needs; nil: the Pod is missing.
type matter func(*corev1.Pod) *corev1.Pod

func waits(p *corev1.Pod) *corev1.Pod { return p }
func lost(*corev1.Pod) *corev1.Pod    { return nil }
func free(p *corev1.Pod) *corev1.Pod {
	p.Spec.SchedulingGates = nil
	return p
}

func placed(p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeName = "a"
	return free(p)
}

// grouped is a Pod that names its PodGroup of Kubernetes, and has no node.
func grouped(p *corev1.Pod) *corev1.Pod {
	p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("llama-0")}
	return free(p)
}

// nameGroups has Pods name their PodGroup, by their numbers in the group.
func nameGroups(numbers ...int) func(*Gang, *World) {
	return func(g *Gang, _ *World) {
		for _, n := range numbers {
			g.Replicas[n/2].Pods[n%2].Pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new(g.Name)}
		}
	}
}

func goes(of matter) matter {
	return func(p *corev1.Pod) *corev1.Pod {
		p = of(p)
		p.DeletionTimestamp = &metav1.Time{Time: now}
		return p
	}
}

// gangOf returns a group with what is the matter with its Pods, in order of their names.
func gangOf(s *v1alpha1.ModelServing, gpus int64, matters ...matter) *Gang {
	g := Gang{Serving: s, Name: s.Name + "-0"}
	for n, r := range groups.WantedGroups(s, nil, nil)[0].Replicas {
		of := &Replica{Role: r.Role, ID: r.ID}
		for pod, name := range r.Pods {
			of.Pods = append(of.Pods, &Member{Name: name, Pod: matters[2*n+pod](gatedPod(s, name, gpus))})
		}
		g.Replicas = append(g.Replicas, of)
	}
	return &g
}

func names(all []*Member) (names []string) {
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}
