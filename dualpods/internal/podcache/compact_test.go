package podcache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/dualpods/internal/servers/form"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// read returns a Pod as a watch decodes it, with memory of its own.
func read(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	serialised, err := pod.Marshal()
	require.NoError(tb, err)
	own := &corev1.Pod{}
	require.NoError(tb, own.Unmarshal(serialised))
	return own
}

func compact(tb testing.TB, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	own := read(tb, pod)
	Compact(own)
	return own
}

// requester returns number n of the Pods of a Deployment, as the API server has it.
func requester(n int) *corev1.Pod {
	name, token := fmt.Sprintf("llama-7c9d8f6b5-%05d", n), fmt.Sprintf("kube-api-access-%05d", n)
	began := metav1.NewTime(time.Unix(1764000000+int64(n), 0))
	yes, grace, priority, lifetime, mode, preemption := true, int64(30), int32(0), int64(3607), int32(0o644), corev1.PreemptLowerPriority
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: began, ObservedGeneration: 1}
	}
	quantities := corev1.ResourceList{podmeta.ResourceGPU: resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8081), Scheme: corev1.URISchemeHTTP}}, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	fieldEnv := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: name, GenerateName: "llama-7c9d8f6b5-", UID: types.UID(fmt.Sprintf("5f0e7c1e-0000-4000-8000-%012d", n)),
			ResourceVersion: fmt.Sprint(100000 + n), Generation: 1, CreationTimestamp: began,
			Labels: map[string]string{"app.kubernetes.io/name": "llama", "app.kubernetes.io/part-of": "inference", "model": "llama-3.1-8b-instruct", "pod-template-hash": "7c9d8f6b5"},
			Annotations: map[string]string{
				podmeta.AnnotationServerPatch:   "spec:\n  containers:\n  - name: inference-server\n    image: vllm/vllm-openai:v0.11.0\n    command: [vllm, serve, meta-llama/Llama-3.1-8B-Instruct]\n    args: [--port, \"8000\", --max-model-len, \"32768\", --enable-sleep-mode]\n    resources: {limits: {memory: 64Gi}}\n",
				podmeta.AnnotationRelayedLabels: `["model"]`,
				podmeta.AnnotationStatus:        fmt.Sprintf(`{"state":"Serving","launcher":"launcher-%05d","instance":"i-%08x","since":"2026-11-24T10:00:00Z"}`, n/10, n),
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "llama-7c9d8f6b5", UID: "0b8a4a53-6c1d-4f9e-9a57-3a4d6f3a2f11", Controller: &yes, BlockOwnerDeletion: &yes}},
			Finalizers:      []string{podmeta.FinalizerRequester},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("gpu-%05d", n/10), RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: "default-scheduler",
			ServiceAccountName: "default", DeprecatedServiceAccount: "default", TerminationGracePeriodSeconds: &grace, Priority: &priority, EnableServiceLinks: &yes, PreemptionPolicy: &preemption,
			NodeSelector: map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: podmeta.ReadinessGate}},
			Tolerations: []corev1.Toleration{
				{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &lifetime},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &lifetime},
			},
			Containers: []corev1.Container{{
				Name: podmeta.ServingContainer, Image: "ghcr.io/hotseat/requester:v0.1.0", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8000, Protocol: corev1.ProtocolTCP}, {Name: "admin", ContainerPort: 8081, Protocol: corev1.ProtocolTCP}},
				Env:       []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "HF_HOME", Value: "/models"}, fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_IP", "status.podIP")},
				Resources: corev1.ResourceRequirements{Limits: quantities, Requests: quantities}, ReadinessProbe: probe, StartupProbe: probe,
				VolumeMounts: []corev1.VolumeMount{{Name: "hotseat-ca", MountPath: "/etc/hotseat/ca", ReadOnly: true}, {Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{
				{Name: "hotseat-ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "hotseat-ca"}, DefaultMode: &mode}}},
				{Name: token, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &lifetime, Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
				}}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.1.%d.%d", n/250, n%250), PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.1.%d.%d", n/250, n%250)}},
			HostIP: fmt.Sprintf("10.0.%d.%d", n/2500, n/10%250), HostIPs: []corev1.HostIP{{IP: fmt.Sprintf("10.0.%d.%d", n/2500, n/10%250)}}, StartTime: &began, QOSClass: corev1.PodQOSBurstable,
			Conditions: []corev1.PodCondition{condition(podmeta.ReadinessGate), condition("PodReadyToStartContainers"), condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady), condition(corev1.PodScheduled)},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: podmeta.ServingContainer, Ready: true, Started: &yes, Image: "ghcr.io/hotseat/requester:v0.1.0", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
				ImageID: "ghcr.io/hotseat/requester@sha256:" + strings.Repeat("3f", 32), ContainerID: fmt.Sprintf("containerd://%064x", n), AllocatedResources: quantities,
				Resources:    &corev1.ResourceRequirements{Limits: quantities, Requests: quantities},
				VolumeMounts: []corev1.VolumeMountStatus{{Name: "hotseat-ca", MountPath: "/etc/hotseat/ca", ReadOnly: true}, {Name: token, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
		},
	}
}

func asJSON(t *testing.T, o any) string {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return string(text)
}

// filled returns a value of a type that has every field set, once in each list and map.
func filled(kind reflect.Type) reflect.Value {
	v := reflect.New(kind).Elem()
	switch kind {
	case reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("3")))
		return v
	case reflect.TypeFor[metav1.Time]():
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1764000000, 0))))
		return v
	case reflect.TypeFor[intstr.IntOrString]():
		v.Set(reflect.ValueOf(intstr.FromInt32(80)))
		return v
	case reflect.TypeFor[metav1.ObjectMeta](): // of claims that are made from a template
		v.Set(reflect.ValueOf(metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}))
		return v
	}
	switch kind.Kind() {
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(kind.Elem()))
		v.Elem().Set(filled(kind.Elem()))
	case reflect.Slice:
		v.Set(reflect.Append(v, filled(kind.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(kind))
		v.SetMapIndex(filled(kind.Key()), filled(kind.Elem()))
	case reflect.Struct:
		for i := range kind.NumField() {
			v.Field(i).Set(filled(kind.Field(i).Type))
		}
	default:
		panic("no value for a " + kind.String())
	}
	return v
}

// leaves calls do with each value that has no others in it, and the name of its field.
func leaves(v reflect.Value, name string, do func(field string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		leaves(v.Elem(), name, do)
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), name, do)
		}
	case reflect.Struct:
		switch v.Interface().(type) {
		case resource.Quantity, metav1.Time, intstr.IntOrString, metav1.ObjectMeta:
			do(name, v)
			return
		}
		for i := range v.NumField() {
			leaves(v.Field(i), name+"."+v.Type().Field(i).Name, do)
		}
	default:
		do(name, v)
	}
}

// change gives a leaf another value.
func change(v reflect.Value) {
	switch o := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*o = resource.MustParse("4")
		return
	case *metav1.Time:
		*o = metav1.NewTime(o.Add(time.Second))
		return
	case *intstr.IntOrString:
		*o = intstr.FromString("http")
		return
	case *metav1.ObjectMeta:
		o.Labels = map[string]string{"a": "other"}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "b")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Map:
		key, value := v.MapKeys()[0], reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		change(value)
		v.SetMapIndex(key, value)
	default:
		panic("no other value for a " + v.Type().String())
	}
}

// whole returns a Pod that has every field of its spec, and others of its metadata.
func whole() *corev1.Pod {
	pod := requester(0)
	pod.Spec = filled(reflect.TypeFor[corev1.PodSpec]()).Interface().(corev1.PodSpec)
	pod.Spec.Containers[0].Name = podmeta.ServingContainer
	return pod
}

// TestAPatchCanNameEveryField has, for each field of a Pod's spec, a Pod that differs in
// this field alone from one that is cached already.
func TestAPatchCanNameEveryField(t *testing.T) {
	first := compact(t, whole())
	want := whole()
	assert.Equal(t, asJSON(t, want.Spec), asJSON(t, first.Spec))
	assert.True(t, equality.Semantic.DeepEqual(want.ObjectMeta, first.ObjectMeta))
	fields := 0
	var names []string
	leaves(reflect.ValueOf(&want.Spec), "spec", func(field string, _ reflect.Value) { names = append(names, field) })
	for n, name := range names {
		pod, at := whole(), 0
		leaves(reflect.ValueOf(&pod.Spec), "spec", func(_ string, v reflect.Value) {
			if at == n {
				change(v)
				fields++
			}
			at++
		})
		got := compact(t, pod)
		require.Equal(t, asJSON(t, pod.Spec), asJSON(t, got.Spec), name)
		require.NotEqual(t, asJSON(t, first.Spec), asJSON(t, got.Spec), name)
	}
	assert.Greater(t, fields, 500)
	assert.Equal(t, asJSON(t, whole().Spec), asJSON(t, first.Spec), "the first one as before")
	runtime.KeepAlive(first)
}

func TestAFormOfACompactPodIsTheSame(t *testing.T) {
	for name, patch := range map[string]string{
		"a new container": requester(0).Annotations[podmeta.AnnotationServerPatch],
		"what the Pod has": `{"spec": {"containers": [{"name": "inference-server", "image": "vllm", "command": ["vllm", "serve", "m"],
			"env": [{"name": "LOG_LEVEL", "$patch": "delete"}], "volumeMounts": [{"mountPath": "/etc/hotseat/ca", "$patch": "delete"}]}],
			"volumes": [{"name": "kube-api-access-00002", "$patch": "delete"}], "tolerations": [{"key": "other"}], "nodeSelector": {"nvidia.com/gpu.product": null}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			first := compact(t, requester(1))
			pod := requester(2)
			want, problems := form.FromPatch(pod, patch)
			got, gotProblems := form.FromPatch(compact(t, pod), patch)
			assert.Equal(t, want, got)
			assert.Equal(t, problems, gotProblems)
			assert.NotEmpty(t, want.Args)
			runtime.KeepAlive(first)
		})
	}
}

func TestPodsOfOneDeploymentShareTheirParts(t *testing.T) {
	a := compact(t, requester(1))
	runtime.GC() // which leaves what a Pod has
	runtime.GC()
	b := compact(t, requester(2))
	assert.True(t, equality.Semantic.DeepEqual(requester(2).Spec, b.Spec))
	assert.True(t, equality.Semantic.DeepEqual(requester(2).ObjectMeta, b.ObjectMeta))
	same := func(of func(*corev1.Pod) unsafe.Pointer, what string) { assert.Equal(t, of(a), of(b), what) }
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.OwnerReferences[0]) }, "owners")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Finalizers[0]) }, "finalizers")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Spec.Tolerations[0]) }, "tolerations")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Spec.ReadinessGates[0]) }, "readiness gates")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(p.Spec.SecurityContext) }, "security context")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Spec.Containers[0].Env[0]) }, "environment")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(p.Spec.Containers[0].ReadinessProbe) }, "probe")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(p.Spec.Volumes[0].ConfigMap) }, "volume")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(p.Spec.Volumes[1].Projected) }, "token")
	same(func(p *corev1.Pod) unsafe.Pointer {
		return unsafe.Pointer(unsafe.StringData(p.Annotations[podmeta.AnnotationServerPatch]))
	}, "server patch")

	plain := func(n int) *corev1.Pod { // without a token
		pod := requester(n)
		pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = pod.Spec.Volumes[:1], pod.Spec.Containers[0].VolumeMounts[:1]
		return compact(t, pod)
	}
	a, b = plain(1), plain(2)
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Spec.Containers[0]) }, "containers")
	same(func(p *corev1.Pod) unsafe.Pointer { return unsafe.Pointer(&p.Spec.Volumes[0]) }, "volumes")
	_ = append(a.Spec.Containers, corev1.Container{Name: "of its own"})
	assert.Equal(t, 1, cap(b.Spec.Containers))
}

func TestPartsGoWithTheirPods(t *testing.T) {
	held := func() int {
		containers.mu.Lock()
		defer containers.mu.Unlock()
		return len(containers.held)
	}
	before := held()
	var pods []*corev1.Pod
	for n := range 20 {
		pod := requester(n)
		pod.Spec.Containers[0].Image = fmt.Sprint("goes-", n)
		pods = append(pods, compact(t, pod))
	}
	runtime.GC()
	require.GreaterOrEqual(t, held(), len(pods), "each has containers of its own")
	runtime.KeepAlive(pods)
	require.Eventually(t, func() bool { runtime.GC(); return held() <= before }, patience.Wait(), 10*time.Millisecond)
	assert.Equal(t, "goes-1", compact(t, func() *corev1.Pod {
		pod := requester(1)
		pod.Spec.Containers[0].Image = "goes-1"
		return pod
	}()).Spec.Containers[0].Image, "it comes again")
}

func TestOfAStatusIsKeptWhatIsRead(t *testing.T) {
	pod := requester(3)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "m"}}}}
	pod.Status.ContainerStatuses[0].RestartCount, pod.Status.ContainerStatuses[0].Ready = 2, true
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3, Message: "ended"}
	got := compact(t, pod)
	assert.True(t, equality.Semantic.DeepEqual(corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.0.3", StartTime: pod.Status.StartTime, Conditions: pod.Status.Conditions,
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: pod.Status.InitContainerStatuses[0].State}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: podmeta.ServingContainer, Ready: true, RestartCount: 2, State: pod.Status.ContainerStatuses[0].State, LastTerminationState: pod.Status.ContainerStatuses[0].LastTerminationState,
		}},
	}, got.Status), asJSON(t, got.Status))
	why, stuck := podmeta.Waits(got)
	assert.True(t, stuck)
	assert.Contains(t, why, "ImagePullBackOff")
	assert.True(t, podmeta.Ready(got))
	assert.True(t, podmeta.ContainerRuns(got, podmeta.ServingContainer))

	both := requester(4)
	both.Status.PodIPs = []corev1.PodIP{{IP: both.Status.PodIP}, {IP: "fd00::4"}}
	assert.Equal(t, []corev1.PodIP{{IP: both.Status.PodIP}, {IP: "fd00::4"}}, compact(t, both).Status.PodIPs)
}
