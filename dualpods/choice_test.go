package dualpods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// data is a volume of the node that some requesters need to find.
func data(kind *corev1.HostPathType) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data", Type: kind}}
}

// launcherNamed returns a launcher Pod that runs, is Ready, and was created in that minute.
func launcherNamed(name string, minute int, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := made(owner("LauncherConfig", "vllm", "config"), changes...)
	pod.Name, pod.UID, pod.CreationTimestamp = name, types.UID(name), metav1.NewTime(noon.Add(time.Duration(minute)*time.Minute))
	pod.Spec.Containers = append([]corev1.Container{{Name: podmeta.ServingContainer, Image: "vllm:1"}}, pod.Spec.Containers...)
	if len(pod.Spec.Volumes) > 0 {
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
	if pod.Status.ContainerStatuses == nil {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	pod.Status.PodIP = "10.1.0.2"
	if pod.Status.Conditions == nil {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return pod
}

func isUnready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func isStarting(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{} }

func isDown(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: podmeta.ServingContainer, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
}

func isDeleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }

func hasData(p *corev1.Pod) {
	unset := corev1.HostPathUnset // as the API server fills it in
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: data(&unset)}}
}

func ofConfig(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[podmeta.LabelLauncherConfig] = name }
}

func TestRequesterIsServedByTheLauncherThatFitsAndWorks(t *testing.T) {
	plain := dualpods.LauncherNeed{Namespace: "ns", Image: "vllm:1"}
	mounts := plain
	mounts.Mounts = []dualpods.Mount{{Path: "/data", ReadOnly: true, Source: data(nil)}}
	placed := plain
	placed.Placed = "second"
	named := dualpods.LauncherNeed{Namespace: "ns", Config: "other", Image: "vllm:2"}
	elsewhere := plain
	elsewhere.Namespace = "elsewhere"
	first, second := func(c ...func(*corev1.Pod)) *corev1.Pod { return launcherNamed("first", 0, c...) }, func(c ...func(*corev1.Pod)) *corev1.Pod { return launcherNamed("second", 1, c...) }
	silent := map[types.UID]time.Duration{"first": dualpods.LauncherPatience}
	for name, c := range map[string]struct {
		need      dualpods.LauncherNeed
		launchers []*corev1.Pod
		lost      map[types.UID]time.Duration
		chosen    string
		fits      bool
	}{
		"both work: the oldest":                           {plain, []*corev1.Pod{second(), first()}, nil, "first", true},
		"the oldest lacks a mount":                        {mounts, []*corev1.Pod{first(), second(hasData)}, nil, "second", true},
		"the oldest lacks a mount, the other is starting": {mounts, []*corev1.Pod{first(), second(hasData, isStarting)}, nil, "second", true},
		"all lack the mount":                              {mounts, []*corev1.Pod{first(), second()}, nil, "first", false},
		"the oldest is not ready":                         {plain, []*corev1.Pod{first(isUnready), second()}, nil, "second", true},
		"the only one is not ready":                       {plain, []*corev1.Pod{first(isUnready)}, nil, "first", true},
		"the oldest has fallen silent":                    {plain, []*corev1.Pod{first(), second()}, silent, "second", true},
		"it fell silent a moment ago":                     {plain, []*corev1.Pod{first(), second()}, map[types.UID]time.Duration{"first": time.Second}, "first", true},
		"one is silent, the other is starting":            {plain, []*corev1.Pod{first(), second(isStarting)}, silent, "second", true},
		"one is silent, the other's container has ended":  {plain, []*corev1.Pod{first(), second(isDown)}, silent, "first", true},
		"the oldest is being deleted":                     {plain, []*corev1.Pod{first(isDeleted), second(isDown)}, nil, "second", true},
		"its sleeper is on the other":                     {placed, []*corev1.Pod{first(), second()}, nil, "second", true},
		"its sleeper is on the other, which is not ready": {placed, []*corev1.Pod{first(), second(isUnready)}, nil, "second", true},
		"its sleeper is on the other, which is going":     {placed, []*corev1.Pod{first(), second(isDeleted)}, nil, "first", true},
		"it names a LauncherConfig of another image":      {named, []*corev1.Pod{first(), second(ofConfig("other"))}, nil, "second", false},
		"no launcher has the image":                       {dualpods.LauncherNeed{Namespace: "ns", Image: "vllm:2"}, []*corev1.Pod{first()}, nil, "", false},
		"it is of another namespace":                      {elsewhere, []*corev1.Pod{first()}, nil, "", false},
	} {
		chosen, fits, found := dualpods.ChooseLauncher(&c.need, c.launchers, func(p *corev1.Pod) dualpods.Provider { return dualpods.ProviderOf(p, c.lost[p.UID]) })
		assert.Equal(t, c.chosen != "", found, name)
		assert.Equal(t, c.fits, fits, name)
		if found {
			assert.Equal(t, c.chosen, chosen.Name, name)
		}
	}
}

func TestMountsAreComparedWithTheirDefaults(t *testing.T) {
	mode, other := int32(0o644), int32(0o600)
	projected := func(mode *int32) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: mode}}
	}
	config := func(mode *int32) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{DefaultMode: mode}}
	}
	secret := func(mode *int32) corev1.VolumeSource {
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: mode}}
	}
	for name, c := range map[string]struct {
		has, wants corev1.VolumeSource
		in         bool
	}{
		"a folder of the node":      {data(new(corev1.HostPathType)), data(nil), true},
		"a ConfigMap":               {config(&mode), config(nil), true},
		"a ConfigMap, another mode": {config(&other), config(nil), false},
		"a Secret":                  {secret(&mode), secret(nil), true},
		"a projected volume":        {projected(&mode), projected(nil), true},
		"another kind":              {secret(&mode), config(nil), false},
	} {
		spec := &corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: c.has}},
			Containers: []corev1.Container{{Name: podmeta.ServingContainer, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
		}
		m := dualpods.Mount{Path: "/v", Source: c.wants}
		assert.Equal(t, c.in, m.In(spec), name)
	}
}
