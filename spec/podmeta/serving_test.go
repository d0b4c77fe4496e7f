package podmeta_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hotseat.dev/hotseat/spec/podmeta"
)

func TestOwnerIsAModelServingOfOurGroupThatControls(t *testing.T) {
	for name, c := range map[string]struct {
		owner metav1.OwnerReference
		is    bool
	}{
		"a ModelServing":                  {metav1.OwnerReference{APIVersion: "hotseat.dev/v1alpha1", Kind: "ModelServing", Controller: new(true)}, true},
		"one that does not control":       {metav1.OwnerReference{APIVersion: "hotseat.dev/v1alpha1", Kind: "ModelServing"}, false},
		"a ModelServing of another group": {metav1.OwnerReference{APIVersion: "workload.serving.volcano.sh/v1alpha1", Kind: "ModelServing", Controller: new(true)}, false},
		"another kind of our group":       {metav1.OwnerReference{APIVersion: "hotseat.dev/v1alpha1", Kind: "LauncherConfig", Controller: new(true)}, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{c.owner}}}
		assert.Equal(t, c.is, podmeta.ServingOf(pod) != nil, name)
	}
}

func TestGPUsOfAnyContainerAreFound(t *testing.T) {
	one := corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1")}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		has  bool
	}{
		"a limit":             {corev1.PodSpec{Containers: []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Limits: one}}}}, true},
		"a request":           {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: one}}}}, true},
		"of an initContainer": {corev1.PodSpec{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: one}}}}, true},
		"zero":                {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("0")}}}}}, false},
	} {
		assert.Equal(t, c.has, podmeta.HoldsGPUs(&c.spec), name)
	}
}

func TestReservedGPUsAreCountedAsTheSchedulerCounts(t *testing.T) {
	of := func(n string, always bool) corev1.Container {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse(n)}}}
		if always {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		return c
	}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want int64
	}{
		"none":                        {corev1.PodSpec{Containers: []corev1.Container{{}}}, 0},
		"two containers":              {corev1.PodSpec{Containers: []corev1.Container{of("1", false), of("2", false)}}, 3},
		"a request":                   {corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("2")}}}}}, 2},
		"an init container that ends": {corev1.PodSpec{InitContainers: []corev1.Container{of("4", false)}, Containers: []corev1.Container{of("1", false)}}, 4},
		"a sidecar":                   {corev1.PodSpec{InitContainers: []corev1.Container{of("1", true), of("4", false)}, Containers: []corev1.Container{of("3", false)}}, 5},
	} {
		assert.Equal(t, c.want, podmeta.ReservedGPUs(&c.spec), name)
	}
}

func TestReservedKeysAreTheControllers(t *testing.T) {
	for _, key := range []string{podmeta.AnnotationServerPatch, "dual-pods.llm-d.ai/admin-port", podmeta.AnnotationModelCache, podmeta.AnnotationOnExit, podmeta.AnnotationLauncherConfig, "example.com/a"} {
		assert.False(t, podmeta.IsReservedAnnotation(key), key)
	}
	for _, key := range []string{podmeta.AnnotationBindingPrefix + "a", podmeta.AnnotationStatus, podmeta.AnnotationTemplateHash, podmeta.AnnotationFailuresPrefix + "a"} {
		assert.True(t, podmeta.IsReservedAnnotation(key), key)
	}
	assert.True(t, podmeta.IsReservedLabel(podmeta.LabelLauncherConfig, "any"))
	assert.True(t, podmeta.IsReservedLabel(podmeta.LabelServing, "any"))
	assert.True(t, podmeta.IsReservedLabel(podmeta.LabelComponent, podmeta.ComponentAgent))
	assert.False(t, podmeta.IsReservedLabel(podmeta.LabelComponent, "router"))
}
