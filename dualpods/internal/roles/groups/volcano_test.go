package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestPodsThatVolcanoSchedulesNameTheirPodGroup(t *testing.T) {
	for name, c := range map[string]struct {
		scheduler string
		by        v1alpha1.GangScheduler
		volcano   bool
	}{
		"the scheduler of Kubernetes":  {"", v1alpha1.GangAuto, false},
		"Volcano":                      {"volcano", v1alpha1.GangAuto, true},
		"Volcano by another name":      {"batch", v1alpha1.GangVolcano, true},
		"another scheduler":            {"batch", v1alpha1.GangAuto, false},
		"Volcano's scheduler by gates": {"volcano", v1alpha1.GangGated, false},
	} {
		w := world()
		w.Serving.Spec.SchedulerName, w.Serving.Spec.GangScheduler = c.scheduler, c.by
		w.Serving.Spec.Template.GangPolicy = &v1alpha1.GangPolicy{}
		pod := w.newPod(w.Members[0].place)
		assert.Equal(t, c.scheduler, pod.Spec.SchedulerName, name)
		assert.Equal(t, !c.volcano, podmeta.AwaitsGang(pod), name)
		group, task := pod.Annotations["scheduling.k8s.io/group-name"], pod.Annotations["volcano.sh/task-spec"]
		if c.volcano {
			assert.Equal(t, []string{"llama-0", "prefill-0"}, []string{group, task}, name)
		} else {
			assert.Empty(t, group+task, name)
		}
	}
}

func TestCountedPodsNameThePodGroupOfKubernetes(t *testing.T) {
	for name, c := range map[string]struct {
		has       bool // the cluster has such PodGroups
		scheduler string
		by        v1alpha1.GangScheduler
		want      bool
	}{
		"the cluster has them":               {true, "", v1alpha1.GangAuto, true},
		"the scheduler of Kubernetes":        {true, "default-scheduler", v1alpha1.GangAuto, true},
		"the cluster lacks them":             {false, "", v1alpha1.GangAuto, false},
		"asked for, and lacking":             {false, "", v1alpha1.GangKubernetes, false},
		"another scheduler":                  {true, "batch", v1alpha1.GangAuto, false},
		"another scheduler that knows them":  {true, "batch", v1alpha1.GangKubernetes, true},
		"gates are asked for":                {true, "", v1alpha1.GangGated, false},
		"Volcano":                            {true, "volcano", v1alpha1.GangAuto, false},
		"Volcano's scheduler, asked as such": {true, "volcano", v1alpha1.GangKubernetes, true},
	} {
		w := world()
		spec := &w.Serving.Spec
		spec.SchedulerName, spec.GangScheduler = c.scheduler, c.by
		spec.Template.Roles[0].Replicas = new(int32(2))
		spec.Template.GangPolicy = &v1alpha1.GangPolicy{MinRoleReplicas: map[string]int32{"prefill": 1}}
		controller := New(Options{PodGroups: func() (bool, error) { return c.has, nil }})
		require.NoError(t, controller.observeKubernetes(w))
		p := w.Members[0].place
		require.Equal(t, "prefill", p.role)
		counted := w.newPod(p)
		p.replica = 1
		extra := w.newPod(p)
		assert.Equal(t, c.want, counted.Spec.SchedulingGroup != nil, name)
		assert.Nil(t, extra.Spec.SchedulingGroup, name)
		assert.Equal(t, !c.want && !spec.UsesVolcano(), podmeta.AwaitsGang(counted), name)
		assert.Equal(t, !spec.UsesVolcano(), podmeta.AwaitsGang(extra), name)
		if c.want {
			assert.Equal(t, "llama-0", *counted.Spec.SchedulingGroup.PodGroupName, name)
		}
		w.Kubernetes, spec.Template.GangPolicy = false, nil
		require.NoError(t, controller.observeKubernetes(w))
		assert.False(t, w.Kubernetes, "%s: without a policy", name)
	}
}

func TestRequestsAreThoseOfTheTemplate(t *testing.T) {
	role := &v1alpha1.ServingRole{Name: "server", InferenceServerConfig: "a", GPUs: new(int32(4))}
	assert.Equal(t, "4", quantityOf(Requests(role, 0), podmeta.ResourceGPU))
	role = &v1alpha1.ServingRole{Name: "server", WorkerReplicas: new(int32(1)),
		EntryTemplate:  &runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}}, {"name": "b"}]}}`)},
		WorkerTemplate: &runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]}}`)},
	}
	assert.Equal(t, []string{"1", "1Gi"}, []string{quantityOf(Requests(role, 0), corev1.ResourceCPU), quantityOf(Requests(role, 0), corev1.ResourceMemory)})
	assert.Equal(t, "3", quantityOf(Requests(role, 1), corev1.ResourceCPU))
	role.EntryTemplate.Raw = []byte(`{"spec": 7}`)
	require.Empty(t, Requests(role, 0))
}

func quantityOf(list corev1.ResourceList, name corev1.ResourceName) string {
	is, has := list[name]
	if !has {
		return ""
	}
	return new(resource.Quantity(is)).String()
}
